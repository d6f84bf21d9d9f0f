package dev.edgedec.core

import java.io.File
import java.io.IOException
import java.io.Reader
import java.nio.charset.CharacterCodingException
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject

/** The parts of a tokenizer.json, checked. */
internal class TokenizerFile(
    /** Every token by its id; null where there is none. */
    val tokens: List<String?>,
    val added: List<AddedToken>,
    val normalization: Normalization,
    val steps: List<Step>,
    val model: Bpe,
    /** Ids that go before and after a text that is to have special tokens. */
    val around: Pair<List<Int>, List<Int>>,
    val scheme: Scheme,
) {
    companion object {
        const val NAME = "tokenizer.json"
        private const val MAX_BYTES = 64L shl 20

        /** @throws BundleException missing, too large, damaged, or with a section that is not known here */
        fun read(file: File): TokenizerFile {
            val expected = "$file: expected a Hugging Face tokenizer.json"
            try {
                if (file.length() > MAX_BYTES) throw BundleException("$file: expected at most ${MAX_BYTES shr 20} MiB")
                return file.inputStream().use { parse(strictUtf8(it), file) }
            } catch (error: JsonException) {
                throw BundleException("$expected: ${error.message}")
            } catch (_: CharacterCodingException) {
                throw BundleException("$file: not UTF-8: the file is damaged, copy the bundle again")
            } catch (error: IOException) {
                throw BundleException("$file cannot be read: ${oneLine(error.message.orEmpty())}", error)
            }
        }

        private fun parse(source: Reader, file: File): TokenizerFile {
            val reader = JsonReader(source)
            val model = ModelSection("$file: model")
            val found = HashMap<String, JsonElement>()
            reader.fields { name -> if (name == "model") model.read(reader) else found[name] = reader.element() }
            reader.end()
            val sections = Fields(JsonObject(found), file.path)
            fun section(name: String) = if (sections.has(name)) sections.fields(name) else null
            val vocabulary = model.vocabulary()
            val added = if (sections.has("added_tokens")) added(sections, vocabulary) else emptyList()
            return TokenizerFile(
                tokens = vocabulary.tokens(added),
                added = added,
                normalization = Normalization.read(section("normalizer")),
                steps = PreTokenizer.read(section("pre_tokenizer")),
                model = model.bpe(vocabulary),
                around = section("post_processor")?.let(::around) ?: NOTHING_AROUND,
                scheme = Scheme.read(section("decoder")),
            )
        }

        private fun added(sections: Fields, vocabulary: Vocabulary): List<AddedToken> {
            val found = ArrayList<AddedToken>()
            val ids = HashMap<String, Int>()
            var next = vocabulary.size
            for (fields in sections.each("added_tokens")) {
                val content = fields.textOr("content", "")
                if (content.isEmpty()) continue
                if (content.length > MAX_ADDED_LENGTH || isUnpaired(content)) {
                    throw fields.wrong("content", "a text of at most $MAX_ADDED_LENGTH characters")
                }
                // As the library numbers them, whatever the file says.
                val id = vocabulary.ids[content] ?: ids.getOrPut(content) { next }
                if (fields.id("id") != id) throw fields.wrong("id", "$id, the id of this token")
                next = maxOf(next, id + 1)
                val special = fields.flagOr("special", false)
                found += AddedToken(
                    id,
                    content,
                    special,
                    normalized = fields.flagOr("normalized", !special),
                    singleWord = fields.flagOr("single_word", false),
                    leftStrip = fields.flagOr("lstrip", false),
                    rightStrip = fields.flagOr("rstrip", false),
                )
            }
            return found
        }

        private fun around(section: Fields): Pair<List<Int>, List<Int>> {
            val templates = templates(section)
            if (templates.size > 1) throw unknown(section, "a second TemplateProcessing", "one")
            val template = templates.firstOrNull() ?: return NOTHING_AROUND
            val before = ArrayList<Int>()
            val after = ArrayList<Int>()
            var texts = 0
            for (part in template.each("single")) {
                if (part.has("Sequence")) {
                    if (part.fields("Sequence").text("id") != "A") throw part.wrong("Sequence", "A")
                    texts++
                } else {
                    val special = template.fields("special_tokens").fields(part.fields("SpecialToken").text("id"))
                    (if (texts == 0) before else after) += special.ids("ids")
                }
            }
            if (texts != 1) throw section.wrong("single", "the text once")
            if (before.size + after.size > MAX_AROUND) throw section.wrong("single", "at most $MAX_AROUND tokens")
            return before to after
        }

        private fun templates(section: Fields): List<Fields> = when (val kind = section.text("type")) {
            "Sequence" -> section.each("processors").flatMap(::templates)
            "TemplateProcessing" -> listOf(section)
            "ByteLevel" -> emptyList() // changes offsets only
            else -> throw unknown(section, kind, "ByteLevel, TemplateProcessing or a Sequence of them")
        }

        private val NOTHING_AROUND = emptyList<Int>() to emptyList<Int>()
        private const val MAX_ADDED_LENGTH = 256
        private const val MAX_AROUND = 1024
    }
}

/** The tokens of a model, in both directions. */
internal class Vocabulary(val ids: Map<String, Int>, where: String) {
    val size: Int get() = ids.size
    private val highest = ids.values.maxOrNull() ?: throw BundleException("$where: it has no tokens")

    /** All tokens by id, added ones included. */
    fun tokens(added: List<AddedToken>): List<String?> {
        val found = arrayOfNulls<String>(1 + maxOf(highest, added.maxOfOrNull { it.id } ?: 0))
        for ((token, id) in ids) found[id] = token
        for (token in added) found[token.id] = token.content
        return found.asList()
    }
}

/** Reads the `model` section value by value, since its tree would be many times as large as what is kept of it. */
private class ModelSection(private val where: String) {
    private val ids = HashMap<String, Int>()
    private val settings = HashMap<String, JsonElement>()
    private val merges = ArrayList<String>()

    fun read(reader: JsonReader) {
        if (!reader.isObject()) throw BundleException("$where: expected an object")
        reader.fields { name ->
            when (name) {
                "vocab" -> vocabulary(reader)
                "merges" -> reader.items { merge(reader) }
                else -> settings[name] = reader.element()
            }
        }
    }

    private fun vocabulary(reader: JsonReader) = reader.fields { token ->
        val id = reader.element().asWhole()?.takeIf { it in 0..MAX_ID }
            ?: throw BundleException("$where: token ${oneLine(token)} has no id from 0 to $MAX_ID")
        if (isUnpaired(token)) throw BundleException("$where: token ${oneLine(token)} is not valid Unicode")
        ids[token] = id.toInt()
    }

    /** A pair, or as older files have it a text with a space. */
    private fun merge(reader: JsonReader) {
        val parts = ArrayList<String>(2)
        if (reader.isString()) parts += reader.string().split(' ') else reader.items { parts += reader.string() }
        if (parts.size != 2) throw BundleException("$where: merge ${merges.size / 2} is not a pair")
        merges += parts
    }

    fun vocabulary() = Vocabulary(ids, where)

    fun bpe(vocabulary: Vocabulary): Bpe {
        val fields = Fields(JsonObject(settings), where)
        val kind = fields.textOr("type", "BPE")
        if (kind != "BPE") throw unknown(fields, "model $kind", "BPE")
        for (name in listOf("continuing_subword_prefix", "end_of_word_suffix")) {
            if (fields.textOr(name, "").isNotEmpty()) throw fields.wrong(name, "none")
        }
        if (fields.has("dropout")) throw fields.wrong("dropout", "null")
        val unknown = fields.textOr("unk_token", "")
        return Bpe(
            vocabulary.ids,
            merges(vocabulary.ids),
            unknown = if (unknown.isEmpty()) null else id(unknown),
            fuseUnknown = fields.flagOr("fuse_unk", false),
            bytes = if (fields.flagOr("byte_fallback", false)) BYTE_NAMES.map { ids[it] } else null,
            wholeWords = fields.flagOr("ignore_merges", false),
        )
    }

    private fun merges(ids: Map<String, Int>): Merges {
        val found = Merges(merges.size / 2)
        for (at in merges.indices step 2) {
            found.add(id(merges[at]), id(merges[at + 1]), id(merges[at] + merges[at + 1]))
        }
        merges.clear()
        return found
    }

    private fun id(token: String): Int =
        ids[token] ?: throw BundleException("$where: ${oneLine(token)} is not in its vocabulary")

    private companion object {
        const val MAX_ID = 1L shl 21
        val BYTE_NAMES = (0..255).map { "<0x%02X>".format(it) }
    }
}

/** Whether a text has half of a surrogate pair, which no UTF-8 can hold. */
internal fun isUnpaired(text: String): Boolean = unpairedAt(text) >= 0

internal fun unpairedAt(text: String): Int {
    var at = 0
    while (at < text.length) {
        val char = text.codePointAt(at)
        if (char in 0xd800..0xdfff) return at
        at += Character.charCount(char)
    }
    return -1
}
