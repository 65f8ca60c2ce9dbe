#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write a float32 copy of a GGUF model: dequantize_gguf.py IN.gguf OUT.gguf

With float32 weights and a float32 cache the engine's numbers can be compared with a float32 reference made elsewhere.
Metadata is copied; only the file type changes. Needs the PyPI packages gguf and numpy. OUT is written under a
temporary name first.
"""
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize

FILE_TYPE_F32 = 0
# Fields that the writer sets by itself or that lose their meaning.
SKIP = {"general.architecture", "general.quantization_version"}


def copy_fields(reader, writer):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in SKIP:
            continue
        if field.name == "general.file_type":
            writer.add_uint32(field.name, FILE_TYPE_F32)
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=element)


def convert(src, dst):
    reader = GGUFReader(src)
    writer = GGUFWriter(dst, reader.fields["general.architecture"].contents())
    copy_fields(reader, writer)
    for tensor in reader.tensors:
        data = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        rows_first = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor(tensor.name, data.reshape(rows_first), raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: dequantize_gguf.py IN.gguf OUT.gguf")
    src, dst = sys.argv[1:]
    convert(src, dst + ".tmp")
    os.replace(dst + ".tmp", dst)


if __name__ == "__main__":
    main()
