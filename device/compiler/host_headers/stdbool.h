// bool, true and false are of the language.
