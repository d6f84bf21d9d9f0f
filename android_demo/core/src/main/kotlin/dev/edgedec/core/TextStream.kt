package dev.edgedec.core

/** Turns tokens into text one by one. */
interface TextStream {
    /** Returns the text that [token] completes; empty if that would be part of a character. */
    fun push(token: Int): String

    /** Returns the text that was held back, at the end. */
    fun flush(): String
}
