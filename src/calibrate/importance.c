/* SPDX-License-Identifier: MIT */
#include "calibrate/importance.h"

double wnw__importance(const float *row, int32_t n, struct wnw__answer_span span)
{
    double sum = 0;
    for (int32_t i = span.first; i < span.first + span.n && i < n; i++) {
        int32_t n_above = 0;
        for (int32_t j = 0; j < n && n_above < span.n; j++)
            n_above += row[j] > row[i] || (row[j] >= row[i] && j < i);
        if (n_above < span.n)
            sum += (double)row[i];
    }
    return sum / span.n;
}

double wnw__far_share(const float *row, int32_t n, int32_t n_sink, int32_t n_recent)
{
    double all = 0, far = 0;
    for (int32_t i = 0; i < n; i++) {
        all += (double)row[i];
        far += i >= n_sink && i < n - n_recent ? (double)row[i] : 0;
    }
    return all > 0 ? far / all : 0;
}
