/* SPDX-License-Identifier: MIT */
#include "calibrate/sample.h"

static const char *const questions[WNW_N_QUESTIONS] = {
    "Summarise the text in three sentences.",
    "Who are the people in the text, and what does each of them do?",
    "Which places does the text name, and what happens there?",
    "What happens first, and what happens last?",
    "Quote a sentence from the middle of the text and explain it.",
    "Which numbers, dates or amounts does the text give, and what do they count?",
    "What is the main claim of the text, and how is it supported?",
    "Describe one object in the text in as much detail as the text allows.",
    "What does somebody in the text want, and what stands in the way?",
    "Repeat the first two sentences of the text.",
    "Repeat the last two sentences of the text.",
    "Which two persons or things does the text compare, and how do they differ?",
    "Why does something in the text happen? Name the cause and the effect.",
    "What is said, and by whom? Give one exchange of words.",
    "Which words show what the writer thinks of the subject?",
    "What would a reader learn from the text about its time?",
    "Name five things that the text mentions only once.",
    "Which question does the text leave open?",
    "Explain a difficult word or phrase of the text from its context.",
    "What does the weather, the light or the landscape look like?",
    "List the steps of something that is done in the text, in their order.",
    "What changes between the beginning and the end?",
    "Who knows something that others in the text do not know?",
    "Give the text a title and say why it fits.",
    "Which rule, law or custom does the text describe?",
    "What is owned, bought, sold, given or lost, and by whom?",
    "Which part of the text could be left out, and what would be missing?",
    "How does the text begin, and how is the beginning taken up later?",
    "What is the relation between the persons who are named?",
    "Write a question that only a reader of this text can answer, and answer it.",
};

const char *wnw__question(int32_t i)
{
    return questions[i];
}
