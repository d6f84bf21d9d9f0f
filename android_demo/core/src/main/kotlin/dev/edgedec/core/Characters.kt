package dev.edgedec.core

/**
 * A set of characters, as the expressions of the `tokenizers` library match them.
 *
 * Not `Character.getType`: that knows the characters of the year that an Android is from. Others would be cut, and so
 * encoded, in another way than the model was trained with.
 *
 * @param lengths of the runs that are not in it, are, are not and so on, in base 36
 */
internal class Characters(lengths: String) {
    /** Where a run begins or ends. */
    private val bounds = lengths.split(' ').map { it.toInt(36) }.runningReduce(Int::plus).toIntArray()

    operator fun contains(char: Int): Boolean {
        val found = bounds.binarySearch(char)
        return (if (found < 0) -found - 1 else found + 1) % 2 == 1
    }
}

/** `\p{L}` */
internal fun isLetter(char: Int): Boolean = char in LETTERS

/** `\p{N}` */
internal fun isNumber(char: Int): Boolean = char in NUMBERS

/** `\s`: Unicode's White_Space. */
internal fun isSpace(char: Int): Boolean = when (char) {
    in 0x09..0x0d, 0x20, 0x85, 0xa0, 0x1680, in 0x2000..0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000 -> true
    else -> false
}

/** Where a text has half of a surrogate pair, which no UTF-8 can hold; -1 if nowhere. */
internal fun unpairedAt(text: String): Int {
    var at = 0
    while (at < text.length) {
        val char = text.codePointAt(at)
        if (char in 0xd800..0xdfff) return at
        at += Character.charCount(char)
    }
    return -1
}

internal fun isUnpaired(text: String): Boolean = unpairedAt(text) >= 0
