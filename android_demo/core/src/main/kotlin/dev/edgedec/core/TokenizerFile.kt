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
        private const val MAX_BYTES = 48L shl 20

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
            reader.fields { if (it == "model") model.read(reader) else found[it] = reader.element() }
            reader.end()
            val sections = Fields(JsonObject(found), file.path)
            fun section(name: String) = if (sections.has(name)) sections.fields(name) else null
            val normalization = Normalization.read(section("normalizer"))
            val added = if (sections.has("added_tokens")) added(sections, model.ids, normalization) else emptyList()
            return TokenizerFile(
                tokens = model.tokens(added),
                added = added,
                normalization = normalization,
                steps = PreTokenizer.read(section("pre_tokenizer")),
                model = model.bpe(),
                around = section("post_processor")?.let(::around) ?: NOTHING_AROUND,
                scheme = Scheme.read(section("decoder")),
            )
        }

        private fun added(sections: Fields, known: Map<String, Int>, normalization: Normalization): List<AddedToken> {
            val found = ArrayList<AddedToken>()
            val ids = HashMap<String, Int>()
            var next = known.size
            for (fields in sections.each("added_tokens")) {
                val content = fields.textOr("content", "")
                if (content.isEmpty()) continue
                if (content.length > MAX_ADDED_LENGTH || isUnpaired(content)) {
                    throw fields.wrong("content", "a text of at most $MAX_ADDED_LENGTH characters")
                }
                // As the library numbers them, whatever the file says.
                val id = known[content] ?: ids.getOrPut(content) { next }
                if (fields.id("id") != id) throw fields.wrong("id", "$id, the id of this token")
                next = maxOf(next, id + 1)
                val special = fields.flagOr("special", false)
                val normalized = fields.flagOr("normalized", !special)
                found += AddedToken(
                    id,
                    // Also what it is in a decoded text.
                    if (normalized) normalization.apply(content) else content,
                    special,
                    normalized,
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

/** Reads the `model` section value by value, since its tree would be many times as large as what is kept of it. */
private class ModelSection(private val where: String) {
    val ids = HashMap<String, Int>()
    private val settings = HashMap<String, JsonElement>()
    private val merges = Merges()

    fun read(reader: JsonReader) = reader.fields { name ->
        when (name) {
            "vocab" -> reader.fields { token -> add(token, reader.whole()) }
            "merges" -> reader.items { merge(reader) }
            else -> settings[name] = reader.element()
        }
    }

    private fun add(token: String, id: Long?) {
        if (isUnpaired(token)) throw BundleException("$where: token ${oneLine(token)} is not valid Unicode")
        ids[token] = id?.takeIf { it in 0 until MAX_TOKENS }?.toInt()
            ?: throw BundleException("$where: token ${oneLine(token)} has no id below $MAX_TOKENS")
        if (ids.size > MAX_TOKENS) throw BundleException("$where: expected at most $MAX_TOKENS tokens")
    }

    /** A pair, or as older files have it a text with a space. */
    private fun merge(reader: JsonReader) {
        val pair = ArrayList<String>(2)
        if (reader.isString()) pair += reader.string().split(' ') else reader.items { pair += reader.string() }
        if (pair.size != 2) throw BundleException("$where: merge ${merges.size} is not a pair")
        if (merges.size == MAX_MERGES) throw BundleException("$where: expected at most $MAX_MERGES merges")
        // In files of the library the vocabulary is in front.
        merges.add(id(pair[0]), id(pair[1]), id(pair[0] + pair[1]))
    }

    /** All tokens by id, added ones included. */
    fun tokens(added: List<AddedToken>): List<String?> {
        if (ids.isEmpty()) throw BundleException("$where: it has no tokens")
        val found = arrayOfNulls<String>(1 + maxOf(ids.values.max(), added.maxOfOrNull { it.id } ?: 0))
        for ((token, id) in ids) found[id] = token
        for (token in added) found[token.id] = token.content
        return found.asList()
    }

    fun bpe(): Bpe {
        val fields = Fields(JsonObject(settings), where)
        val kind = fields.textOr("type", "BPE")
        if (kind != "BPE") throw unknown(fields, "model $kind", "BPE")
        for (name in listOf("continuing_subword_prefix", "end_of_word_suffix")) {
            if (fields.textOr(name, "").isNotEmpty()) throw fields.wrong(name, "none")
        }
        if (fields.has("dropout")) throw fields.wrong("dropout", "null")
        val unknown = fields.textOr("unk_token", "")
        return Bpe(
            ids,
            merges,
            unknown = if (unknown.isEmpty()) null else id(unknown),
            fuseUnknown = fields.flagOr("fuse_unk", false),
            bytes = if (fields.flagOr("byte_fallback", false)) BYTE_NAMES.map { ids[it] } else null,
            wholeWords = fields.flagOr("ignore_merges", false),
        )
    }

    private fun id(token: String): Int =
        ids[token] ?: throw BundleException("$where: ${oneLine(token)} is not among the tokens before it")

    private companion object {
        // The largest models have 260,000 tokens and twice as many merges.
        const val MAX_TOKENS = 1 shl 19
        const val MAX_MERGES = 1 shl 21
        val BYTE_NAMES = (0..255).map { "<0x%02X>".format(it) }
    }
}
