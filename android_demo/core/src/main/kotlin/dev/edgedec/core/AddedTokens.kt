package dev.edgedec.core

/**
 * A token that is looked for in a text before anything else.
 *
 * @property special it is not part of a decoded text
 * @property normalized it is looked for after the text was normalised
 * @property singleWord it counts only between characters that are not of a word
 * @property leftStrip it takes the white space before it
 * @property rightStrip it takes the white space after it
 */
internal data class AddedToken(
    val id: Int,
    val content: String,
    val special: Boolean = false,
    val normalized: Boolean = false,
    val singleWord: Boolean = false,
    val leftStrip: Boolean = false,
    val rightStrip: Boolean = false,
)

/** A part of a text: an added token, or what is between them. */
internal data class Part(val start: Int, val end: Int, val token: Int?)

/**
 * Finds added tokens in a text: the leftmost, and of those the longest.
 *
 * @param spelled each token by what is looked for
 */
internal class AddedTokens(private val spelled: Map<String, AddedToken>) {
    // By the first character, longest first, so that a text is compared a few times at each place only.
    private val lengths: Map<Char, List<Int>> = spelled.keys.groupBy { it[0] }
        .mapValues { (_, names) -> names.map { it.length }.distinct().sortedDescending() }

    fun split(text: String): List<Part> {
        val found = ArrayList<Part>()
        var from = 0
        var at = 0
        while (at < text.length) {
            val name = nameAt(text, at)
            val token = spelled[name]
            if (name == null || token == null) {
                at++
                continue
            }
            val start = at
            at += name.length
            if (token.singleWord && (endsWord(text, start) || beginsWord(text, at))) continue
            val left = if (token.leftStrip) maxOf(from, beforeSpaces(text, start)) else start
            val right = if (token.rightStrip) afterSpaces(text, at) else at
            if (from < left) found += Part(from, left, null)
            found += Part(left, right, token.id)
            from = right
            at = maxOf(at, right)
        }
        if (from < text.length) found += Part(from, text.length, null)
        return found
    }

    private fun nameAt(text: String, at: Int): String? {
        for (length in lengths[text[at]] ?: return null) {
            if (length > text.length - at) continue
            val name = text.substring(at, at + length)
            if (name in spelled) return name
        }
        return null
    }

    private fun endsWord(text: String, end: Int): Boolean = end > 0 && isWord(text.codePointBefore(end))

    private fun beginsWord(text: String, start: Int): Boolean = start < text.length && isWord(text.codePointAt(start))

    private fun beforeSpaces(text: String, end: Int): Int {
        var at = end
        while (at > 0 && isSpace(text[at - 1].code)) at--
        return at
    }

    private fun afterSpaces(text: String, start: Int): Int {
        var at = start
        while (at < text.length && isSpace(text[at].code)) at++
        return at
    }

    /** `\w` */
    private fun isWord(char: Int): Boolean = Character.isAlphabetic(char) || when (Character.getType(char).toByte()) {
        Character.NON_SPACING_MARK, Character.ENCLOSING_MARK, Character.COMBINING_SPACING_MARK,
        Character.DECIMAL_DIGIT_NUMBER, Character.CONNECTOR_PUNCTUATION -> true
        else -> char == ZERO_WIDTH_NON_JOINER || char == ZERO_WIDTH_JOINER
    }

    private companion object {
        const val ZERO_WIDTH_NON_JOINER = 0x200c
        const val ZERO_WIDTH_JOINER = 0x200d
    }
}
