/* SPDX-License-Identifier: MIT */
#include "base/fingerprint_form.h"
#include "store/wkv.h"
#include "winnow_tools.h"

#include <string.h>

int wnw_stored_check_model(const wnw_stored *st, const wnw_model *m)
{
    char print[WNW_FINGERPRINT_SIZE];
    WNW_REQUIRE(st);
    WNW_REQUIRE(m);
    if (wnw__fingerprint_form(st->meta.fingerprint) == WNW_FINGERPRINT_OLD)
        return wnw__fail(WNW_E_MISMATCH,
                         "the stored cache was written by an older winnow, whose fingerprint %s covers a "
                         "part of the model "
                         "(%.100s) alone: store its text again with `winnow compress`",
                         st->meta.fingerprint, st->meta.model);
    wnw_model_fingerprint(m, print);
    WNW_TRY(wnw_model_check_files(m));
    if (strcmp(print, st->meta.fingerprint) != 0)
        return wnw__fail(WNW_E_MISMATCH,
                         "the stored cache belongs to model %s (%.100s); this one is %s (%.100s)",
                         st->meta.fingerprint, st->meta.model, print, m->name);
    const struct wnw__wkv_meta *meta = &st->meta;
    if (meta->n_layer != m->hp.n_layer || meta->n_head_kv != m->hp.n_head_kv ||
        meta->n_embd_head != m->hp.n_embd_head || meta->n_vocab != m->hp.n_vocab)
        return wnw__fail(
            WNW_E_FORMAT,
            "the stored cache is damaged: it says that its model has %d layers of %d heads of %d "
            "elements and %d tokens, and the model has %d of %d of %d and %d",
            (int)meta->n_layer, (int)meta->n_head_kv, (int)meta->n_embd_head, (int)meta->n_vocab,
            (int)m->hp.n_layer, (int)m->hp.n_head_kv, (int)m->hp.n_embd_head, (int)m->hp.n_vocab);
    return WNW_OK;
}
