"""Commands that show what is to be read: topics of help, and the lessons."""
