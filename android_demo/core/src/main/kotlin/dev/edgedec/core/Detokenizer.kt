package dev.edgedec.core

import java.io.ByteArrayOutputStream

/** Turns tokens into text one by one: the pieces joined are the text of all, and none ends inside a character. */
interface TextStream {
    /** Returns the text that [token] completes; empty if that would be part of a character. */
    fun push(token: Int): String

    /** Returns the text that was held back, at the end. */
    fun flush(): String
}

/**
 * The `decoder` section of a tokenizer.json: how a vocabulary's tokens become text.
 *
 * @property byteLevel every character of a token is a byte (GPT-2's map)
 * @property replacements text replaced inside each token, in order
 * @property byteFallback `<0xNN>` tokens are bytes
 * @property strip what is cut from the beginning of the whole text, [stripCount] times at most
 * @property mark Metaspace's mark for a space
 * @property dropFirstMark Metaspace drops the marks of the first token
 */
internal data class Scheme(
    val byteLevel: Boolean = false,
    val replacements: List<Pair<String, String>> = emptyList(),
    val byteFallback: Boolean = false,
    val strip: Char = ' ',
    val stripCount: Int = 0,
    val mark: String = "",
    val dropFirstMark: Boolean = false,
) {
    /**
     * @param written how the vocabulary writes a token; empty if it is not part of the text
     * @param continued the text goes on after another
     */
    fun stream(written: (Int) -> String, continued: Boolean): TextStream =
        if (byteLevel) ByteJoiner(written) else PieceJoiner(written, this, continued)

    companion object {
        /** @throws BundleException a decoder that cannot be run token by token here */
        fun read(decoder: Fields?): Scheme {
            val parts = if (decoder == null) emptyList() else parts(decoder)
            if (parts.isEmpty()) throw unknown("none")
            if (parts.singleOrNull()?.text("type") == "ByteLevel") return Scheme(byteLevel = true)
            var found = Scheme()
            var fused = false
            for (part in parts) {
                found = found.extended(part, fused)
                fused = fused || part.text("type") == "Fuse"
            }
            val growth = found.replacements.fold(1.0) { all, (old, new) -> all * growth(old, new) }
            if (growth > Normalization.MOST_GROWTH) {
                throw BundleException("the tokenizer's decoder may make $growth characters of one: refused")
            }
            return found
        }

        private fun parts(decoder: Fields): List<Fields> =
            if (decoder.text("type") == "Sequence") decoder.each("decoders").flatMap(::parts) else listOf(decoder)

        private fun Scheme.extended(part: Fields, fused: Boolean): Scheme {
            val kind = part.text("type")
            return when {
                kind == "Replace" && part.fields("pattern").has("String") && !fused -> {
                    val old = part.fields("pattern").text("String")
                    copy(replacements = replacements + (old to part.textOr("content", "")))
                }
                kind == "ByteFallback" && !fused -> copy(byteFallback = true)
                kind == "Metaspace" && !fused ->
                    copy(mark = part.text("replacement"), dropFirstMark = prependScheme(part) != "never")
                kind == "Strip" && fused && part.size("stop") == 0L && part.text("content").length == 1 ->
                    copy(strip = part.text("content")[0], stripCount = minOf(part.size("start"), MAX_STRIP).toInt())
                kind == "Fuse" -> this
                else -> throw unknown(oneLine(kind))
            }
        }

        private fun unknown(kind: String) = BundleException(
            "the tokenizer's decoder ($kind) is unknown here: expected ByteLevel, Metaspace, or" +
                " Replace, ByteFallback, Fuse, Strip in this order",
        )

        private const val MAX_STRIP = 1L shl 20
    }
}

/** GPT-2's map: printable Latin-1 stands for itself, other bytes for U+0100, U+0101 and so on. */
internal object ByteAlphabet {
    private val chars: CharArray = run {
        val plain = ('!'..'~') + ('\u00a1'..'\u00ac') + ('\u00ae'..'\u00ff')
        var next = '\u0100'
        CharArray(256) { byte -> if (byte.toChar() in plain) byte.toChar() else next++ }
    }
    private val bytes: Map<Char, Byte> = chars.indices.associate { chars[it] to it.toByte() }

    fun spell(text: String): String {
        val bytes = text.toByteArray()
        return String(CharArray(bytes.size) { chars[bytes[it].toInt() and 0xff] })
    }

    /** The bytes of a token; of one that is not spelled so, as an added one, its text's. */
    fun bytes(token: String): ByteArray {
        val found = ByteArray(token.length)
        for (at in token.indices) found[at] = bytes[token[at]] ?: return token.toByteArray()
        return found
    }
}

/** Joins the bytes of all tokens as UTF-8, with U+FFFD for invalid ones. */
private class ByteJoiner(private val written: (Int) -> String) : TextStream {
    private val utf8 = Utf8()

    override fun push(token: Int): String = utf8.push(ByteAlphabet.bytes(written(token)))

    override fun flush(): String = utf8.flush()
}

/** Joins SentencePiece's tokens; of a run of byte tokens either all is text, or every byte is U+FFFD. */
private class PieceJoiner(
    private val written: (Int) -> String,
    private val scheme: Scheme,
    continued: Boolean,
) : TextStream {
    private val run = ByteArrayOutputStream()
    private var stripLeft = if (continued) 0 else scheme.stripCount
    private var first = !continued

    override fun push(token: Int): String {
        val piece = written(token).ifEmpty { return "" }
        var text = scheme.replacements.fold(piece) { found, (old, new) -> found.replace(old, new) }
        val dropped = first && scheme.dropFirstMark
        first = false
        if (scheme.byteFallback) {
            byteOf(text)?.let {
                run.write(it)
                return ""
            }
        }
        if (scheme.mark.isNotEmpty()) text = text.replace(scheme.mark, if (dropped) "" else " ")
        return stripped(endRun() + text)
    }

    override fun flush(): String = stripped(endRun())

    private fun endRun(): String {
        val bytes = run.toByteArray()
        run.reset()
        return Utf8.strict(bytes) ?: REPLACEMENT.repeat(bytes.size)
    }

    private fun stripped(text: String): String {
        val cut = text.take(stripLeft).takeWhile { it == scheme.strip }.length
        stripLeft = if (cut == text.length) stripLeft - cut else 0
        return text.substring(cut)
    }
}

/** The byte that a token such as `<0x0A>` stands for, or null. */
internal fun byteOf(token: String): Int? {
    if (token.length != 6 || !token.startsWith("<0x") || token[5] != '>') return null
    val digits = token.substring(3, 5)
    return if (digits.all { it in "0123456789abcdefABCDEF" }) digits.toInt(16) else null
}

private const val REPLACEMENT = "\ufffd"
