// bool, true and false are keywords.
