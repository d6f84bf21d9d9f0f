package dev.edgedec.core

/**
 * Decodes UTF-8 in pieces, with U+FFFD for the longest part of a character that cannot go on, as Unicode advises.
 *
 * Java's own decoder leaves that to the platform: Android's is another one than the desktop's.
 */
internal class Utf8 {
    private var char = 0
    private var missing = 0
    private var lowest = 0x80
    private var highest = 0xbf
    private var invalid = false

    fun push(bytes: ByteArray): String = buildString {
        for (byte in bytes) next(byte.toInt() and 0xff)
    }

    /** What is left of a character that did not end. */
    fun flush(): String = buildString { if (missing > 0) broken() }

    private fun StringBuilder.next(byte: Int) {
        if (missing > 0) {
            if (byte in lowest..highest) {
                follow(byte)
                return
            }
            broken()
        }
        begin(byte)
    }

    private fun StringBuilder.begin(byte: Int) {
        when (byte) {
            in 0x00..0x7f -> append(byte.toChar())
            in 0xc2..0xdf -> start(byte and 0x1f, 1)
            // Neither longer than need be, nor half of a surrogate pair, nor beyond the last character.
            in 0xe0..0xef ->
                start(byte and 0x0f, 2, if (byte == 0xe0) 0xa0 else 0x80, if (byte == 0xed) 0x9f else 0xbf)
            in 0xf0..0xf4 ->
                start(byte and 0x07, 3, if (byte == 0xf0) 0x90 else 0x80, if (byte == 0xf4) 0x8f else 0xbf)
            else -> broken()
        }
    }

    private fun start(bits: Int, more: Int, low: Int = 0x80, high: Int = 0xbf) {
        char = bits
        missing = more
        lowest = low
        highest = high
    }

    private fun StringBuilder.follow(byte: Int) {
        start(char shl 6 or (byte and 0x3f), missing - 1)
        if (missing == 0) appendCodePoint(char)
    }

    private fun StringBuilder.broken() {
        missing = 0
        invalid = true
        append('\ufffd')
    }

    companion object {
        /** The text of these bytes, or null if they are not UTF-8. */
        fun strict(bytes: ByteArray): String? {
            val decoder = Utf8()
            val text = decoder.push(bytes) + decoder.flush()
            return if (decoder.invalid) null else text
        }
    }
}
