package dev.edgedec.core

import java.text.Normalizer

/** A piece of a text on its way to tokens, and whether it is where the whole text begins. */
internal data class Piece(val text: String, val first: Boolean)

/** Turns a piece into others; empty ones count for nothing. */
internal fun interface Step {
    fun apply(piece: Piece): List<Piece>
}

/**
 * The `normalizer` section of a tokenizer.json: what is replaced in a text before it is cut.
 *
 * @property growth the most characters that one of a text becomes
 */
internal class Normalization private constructor(private val steps: List<(String) -> String>, val growth: Double) {
    fun apply(text: String): String = steps.fold(text) { found, step -> step(found) }

    companion object {
        /** Text may grow by this factor; in files that somebody made to be harmful it doubles and doubles. */
        const val MOST_GROWTH = 64.0

        fun read(section: Fields?): Normalization {
            if (section == null) return Normalization(emptyList(), 1.0)
            val found = step(section)
            if (found.growth > MOST_GROWTH) {
                throw BundleException("${section.where}: it may make ${found.growth} characters of one: refused")
            }
            return found
        }

        private fun step(section: Fields): Normalization = when (val kind = section.text("type")) {
            "Sequence" -> section.each("normalizers").map(::step).let { all ->
                Normalization(all.flatMap { it.steps }, all.fold(1.0) { product, one -> product * one.growth })
            }
            // The library orders marks as Unicode 9 did. A system that knows newer ones (some 60 in rare scripts) may
            // put two of them beside each other in another order. Marks in a row take time with the square of their
            // number: 7 s for 100,000.
            "NFC" -> Normalization(listOf { text -> Normalizer.normalize(text, Normalizer.Form.NFC) }, 1.0)
            "Prepend" -> {
                val before = section.text("prepend")
                Normalization(listOf { text -> if (text.isEmpty()) text else before + text }, 1.0 + before.length)
            }
            "Replace" -> {
                val old = section.fields("pattern").let { if (it.has("String")) it.text("String") else throw regex(it) }
                val new = section.textOr("content", "")
                Normalization(listOf { text -> text.replace(old, new) }, growth(old, new))
            }
            else -> throw unknown(section, kind, "NFC, Prepend, Replace or a Sequence of them")
        }

        private fun regex(pattern: Fields) =
            BundleException("${pattern.where}: an expression is unknown here: expected a String")
    }
}

/** The `pre_tokenizer` section of a tokenizer.json: how a text is cut into words. */
internal object PreTokenizer {
    fun read(section: Fields?): List<Step> = if (section == null) emptyList() else step(section)

    private fun step(section: Fields): List<Step> = when (val kind = section.text("type")) {
        "Sequence" -> section.each("pretokenizers").flatMap(::step)
        "ByteLevel" -> listOf(
            ByteLevel(section.flagOr("add_prefix_space", true), section.flagOr("use_regex", true)),
        )
        "Digits" -> listOf(CutIntoWords(if (section.flagOr("individual_digits", false)) EachNumber else WholeNumbers))
        "Metaspace" -> listOf(Metaspace.read(section))
        "Split" -> listOf(split(section))
        else -> throw unknown(section, kind, "ByteLevel, Digits, Metaspace, Split or a Sequence of them")
    }

    private fun split(section: Fields): Step {
        val pattern = section.fields("pattern")
        val behavior = section.text("behavior")
        val invert = section.flagOr("invert", false)
        if (pattern.has("Regex")) {
            val words = KNOWN_SPLITS[pattern.text("Regex")] ?: throw BundleException(
                "${section.where}: its expression ${oneLine(pattern.text("Regex").take(60))}... is unknown here:" +
                    " expected GPT-2's, Llama 3's or Qwen's",
            )
            if (behavior == "Isolated" && !invert) return CutIntoWords(words)
            // These words are all of a text: nothing is between them that could be removed.
            if (behavior == "Removed" && invert && words is WordSplit) return CutIntoWords(words)
        } else if (!invert) {
            val mark = pattern.text("String")
            if (behavior == "MergedWithPrevious") return CutIntoWords { text, from -> afterMark(text, from, mark) }
            if (behavior == "MergedWithNext") return CutIntoWords { text, from -> nextMark(text, from, mark) }
        }
        throw unknown(section, behavior, "Isolated, or with a String MergedWithPrevious or MergedWithNext")
    }
}

/** Cuts pieces into words. */
private class CutIntoWords(private val words: Words) : Step {
    override fun apply(piece: Piece): List<Piece> =
        words.of(piece.text).mapIndexed { at, word -> Piece(word, piece.first && at == 0) }
}

/** Writes each byte as a character; before that it cuts GPT-2's words. */
private class ByteLevel(private val prefixed: Boolean, private val cut: Boolean) : Step {
    override fun apply(piece: Piece): List<Piece> {
        val text = if (prefixed && !piece.text.startsWith(" ")) " " + piece.text else piece.text
        val words = if (cut) GPT2_WORDS.of(text) else listOf(text)
        return words.mapIndexed { at, word -> Piece(ByteAlphabet.spell(word), piece.first && at == 0) }
    }
}

/** Writes a mark for each space, puts one in front, and cuts before each. */
private class Metaspace(private val mark: String, private val scheme: String, private val cut: Boolean) : Step {
    override fun apply(piece: Piece): List<Piece> {
        val marked = piece.text.replace(" ", mark)
        val prefixed = (scheme == "always" || (scheme == "first" && piece.first)) && !marked.startsWith(mark)
        val text = if (prefixed) mark + marked else marked
        if (!cut) return listOf(Piece(text, piece.first))
        return CutIntoWords { all, from -> nextMark(all, from, mark) }.apply(Piece(text, piece.first))
    }

    companion object {
        fun read(section: Fields): Metaspace {
            val mark = section.text("replacement")
            if (mark.codePointCount(0, mark.length) != 1) throw section.wrong("replacement", "one character")
            return Metaspace(mark, prependScheme(section), section.flagOr("split", true))
        }
    }
}

/** When Metaspace puts a mark in front: `always`, `first` (of the whole text) or `never`. */
internal fun prependScheme(section: Fields): String {
    val scheme = section.textOr("prepend_scheme", "always")
    val fits = scheme in listOf("always", "first", "never") &&
        (section.flagOr("add_prefix_space", true) || scheme == "never")
    if (!fits) throw section.wrong("prepend_scheme", "always, first or never, as add_prefix_space says")
    return scheme
}

/** Behind the first mark. */
private fun afterMark(text: String, from: Int, mark: String): Int =
    text.indexOf(mark, from).let { if (it < 0) text.length else it + mark.length }

/** Before the first mark after the one that may be here. */
private fun nextMark(text: String, from: Int, mark: String): Int {
    val behind = if (text.startsWith(mark, from)) from + mark.length else from
    return text.indexOf(mark, behind).let { if (it < 0) text.length else it }
}

/** How many characters a replacement may make of one. */
internal fun growth(old: String, new: String): Double = maxOf(1.0, new.length.toDouble() / old.length)

internal fun unknown(section: Fields, kind: String, expected: String) =
    BundleException("${oneLine(section.where)}: ${oneLine(kind)} is unknown here: expected $expected")
