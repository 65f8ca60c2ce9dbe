// SPDX-License-Identifier: MIT
// The program is llama.cpp's server, from the archive that scripts/setup.sh compiles. What is ours lies in the other
// files of this folder, which winnow-llama-server has and the plain server of the tests has not.
int llama_server(int argc, char **argv);

int main(int argc, char **argv)
{
    return llama_server(argc, argv);
}
