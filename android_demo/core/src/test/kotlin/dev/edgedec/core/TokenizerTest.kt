package dev.edgedec.core

import java.io.File
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir

/** Files that nobody should have made, and texts that are long. */
class TokenizerTest {
    @TempDir
    lateinit var folder: File

    private val demo = File(demoBundle, "tokenizer/tokenizer.json")
    private val sound by lazy { Json.parseToJsonElement(demo.readText()).jsonObject }

    private fun load(content: String): Tokenizer {
        File(folder, "tokenizer.json").writeText(content)
        return Tokenizer.load(folder)
    }

    private fun with(vararg parts: Pair<String, JsonElement>): Tokenizer = load(JsonObject(sound + parts).toString())

    private fun json(text: String): JsonElement = Json.parseToJsonElement(text)

    private fun model(vararg parts: Pair<String, JsonElement>) =
        "model" to JsonObject(sound.getValue("model").jsonObject + parts)

    @Test
    fun `facts of the demo's tokenizer`() {
        val tokenizer = Tokenizer.load(demo.parentFile)
        assertEquals(4096, tokenizer.vocabSize)
        assertEquals((0..4).toSet(), tokenizer.specialIds)
        assertEquals(listOf(2, 225), tokenizer.encode("<|user|> ").toList())
        assertEquals(" ", tokenizer.decode(intArrayOf(2, 225, 4, -1, 4096, Int.MAX_VALUE)))
        val text = tokenizer.chat?.render(listOf(Message("user", "Hi"))).orEmpty()
        assertEquals("<|user|>\nHi<|end|>\n<|assistant|>\n", text)
        assertEquals(listOf(2, 4, 3), tokenizer.encode(text).filter { it in tokenizer.specialIds })
    }

    @Test
    fun `an unknown section is refused by its name`() {
        val kind = json("{\"type\": \"Whatever\"}")
        for (name in listOf("normalizer", "pre_tokenizer", "post_processor")) {
            refused<BundleException>("$name: Whatever is unknown here: expected") { with(name to kind) }
            refused<BundleException>("$name is ") { with(name to JsonPrimitive("x")) }
            refused<BundleException>("type is missing") { with(name to json("{}")) }
        }
        refused<BundleException>("decoder (Whatever) is unknown here") { with("decoder" to kind) }
        val models = mapOf(
            "model Unigram is unknown here: expected BPE" to model("type" to JsonPrimitive("Unigram")),
            "dropout is 0.1" to model("dropout" to JsonPrimitive(0.1)),
            "end_of_word_suffix is \"</w>\"" to model("end_of_word_suffix" to JsonPrimitive("</w>")),
        )
        for ((words, model) in models) refused<BundleException>(words) { with(model) }
        val split = json("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(x+x+)+y\"}, \"behavior\": \"Isolated\"}")
        refused<BundleException>("its expression (x+x+)+y... is unknown here") { with("pre_tokenizer" to split) }
        val replace = json("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" \"}, \"content\": \"_\"}")
        refused<BundleException>("normalizer") { with("normalizer" to replace) }
    }

    @Test
    fun `damaged parts are refused`() {
        val wrong: Map<String, Pair<String, JsonElement>> = mapOf(
            "is not a pair" to model("merges" to json("[[\"a\", \"b\", \"c\"]]")),
            "merge 1 is not a pair" to model("merges" to json("[\"a b\", \"a\"]")),
            "is not among the tokens before it" to model("merges" to json("[[\"a\", \"\u4e16\"]]")),
            "it has no tokens" to model("vocab" to json("{}"), "merges" to json("[]")),
            "token a has no id below" to model("vocab" to json("{\"a\": -1}")),
            "has no id below 524288" to model("vocab" to json("{\"a\": 524288}")),
            "no '{'" to ("model" to JsonPrimitive(1)),
            "expected a list of objects" to ("added_tokens" to json("[1]")),
            "expected 4096, the id of this token" to ("added_tokens" to json("[{\"id\": 9, \"content\": \"<new>\"}]")),
            "at most 256 characters" to
                ("added_tokens" to json("[{\"id\": 4096, \"content\": \"${"x".repeat(257)}\"}]")),
            "true or false" to
                ("added_tokens" to json("[{\"id\": 0, \"content\": \"<|endoftext|>\", \"special\": 1}]")),
            "the text once" to ("post_processor" to template("[]")),
            "at most 1024 tokens" to
                ("post_processor" to template("[$TEXT${", {\"SpecialToken\": {\"id\": \"x\"}}".repeat(1025)}]")),
            "unk_token" to model("unk_token" to JsonPrimitive(1)),
            "y is missing" to ("post_processor" to template("[$TEXT, {\"SpecialToken\": {\"id\": \"y\"}}]")),
        )
        for ((words, part) in wrong) refused<BundleException>(words) { with(part) }
        with("post_processor" to template("[$TEXT]"))
        refused<BundleException>("token ? is not valid Unicode") {
            load(demo.readText().replaceFirst("\"vocab\": {", "\"vocab\": {\"\\ud800\": 9000,"))
        }
    }

    private fun template(single: String) =
        json("{\"type\": \"TemplateProcessing\", \"single\": $single, \"special_tokens\": {\"x\": {\"ids\": [0]}}}")

    @Test
    fun `damaged files are refused`() {
        val text = demo.readText()
        val deep = listOf("[", "{\"a\":", "{\"model\":").map { it.repeat(1_000_000) }
        for (content in listOf("", "[]", "x", text.dropLast(1), "$text x") + deep) {
            refused<BundleException>("tokenizer.json") { load(content) }
        }
        refused<BundleException>("model") { load(JsonObject(sound - "model").toString()) }
        refused<BundleException>("cannot be read") { Tokenizer.load(File(folder, "nothing")) }
        File(folder, "tokenizer.json").writeBytes(demo.readBytes().also { it[5000] = -1 })
        refused<BundleException>("not UTF-8") { Tokenizer.load(folder) }
        java.io.RandomAccessFile(File(folder, "tokenizer.json"), "rw").use { it.setLength(49L shl 20) }
        refused<BundleException>("at most 48 MiB") { Tokenizer.load(folder) }
    }

    @Test
    fun `a file with bytes changed loads or is refused in one sentence`() {
        val whole = File(FormatVectors.repository, "android_demo/vectors/tokenizers/llama2.json").readBytes()
        var refusals = 0
        draws(300) { random ->
            val changed = whole.copyOf()
            repeat(1 + random.nextInt(3)) { changed[random.nextInt(changed.size)] = (32 + random.nextInt(95)).toByte() }
            File(folder, "tokenizer.json").writeBytes(changed)
            try {
                Tokenizer.load(folder).let { it.decode(it.encode("Hello, world! \u4e16")) }
            } catch (error: BundleException) {
                refusals++
                assertTrue('\n' !in error.message.orEmpty())
            }
        }
        assertTrue(refusals > 100, "$refusals")
    }

    @Test
    fun `normalizers that make much of little are refused`() {
        fun replace(old: String, new: String) =
            "{\"type\": \"Replace\", \"pattern\": {\"String\": \"$old\"}, \"content\": \"$new\"}"
        val wrong = listOf(
            List(26) { replace("a", "aa") },
            List(13) { listOf(replace("q", "zz"), replace("z", "qq")) }.flatten(),
            listOf(replace("qzq", "x".repeat(100_000))),
            listOf("{\"type\": \"Prepend\", \"prepend\": \"${"x".repeat(1000)}\"}"),
        )
        for (steps in wrong) {
            val section = json("{\"type\": \"Sequence\", \"normalizers\": [${steps.joinToString()}]}")
            refused<BundleException>("characters of one: refused") { with("normalizer" to section) }
            val decoder = json("{\"type\": \"Sequence\", \"decoders\": [${steps.joinToString()}]}")
            refused<BundleException>("decoder") { with("decoder" to decoder) }
        }
    }

    @Test
    fun `merges may be texts with a space`() {
        val merges = sound.getValue("model").jsonObject.getValue("merges").jsonArray.map { pair ->
            JsonPrimitive(pair.jsonArray.joinToString(" ") { (it as JsonPrimitive).content })
        }
        val other = with(model("merges" to JsonArray(merges)))
        val tokenizer = Tokenizer.load(demo.parentFile)
        draws(50) { random ->
            val text = "def add(left, right): return left + right" + random.text(20)
            assertArrayEquals(tokenizer.encode(text), other.encode(text))
        }
    }

    @Test
    fun `a file of millions of values is refused before memory is`() {
        val wrong = mapOf(
            "values" to "{\"x\": [${"0,".repeat(5_000_000)}0]}",
            "a text of more than" to "{\"x\": \"${"a".repeat(10_000_000)}\"}",
            "at most 524288 tokens" to "{\"model\": {\"vocab\": {${(0..600_000).joinToString(",") { "\"$it\":0" }}}}}",
            "at most 2097152 merges" to
                "{\"model\": {\"vocab\": {\"a\":0,\"aa\":1}, \"merges\": [${"\"a a\",".repeat(2_200_000)}\"a a\"]}}",
        )
        for ((words, content) in wrong) refused<BundleException>(words) { load(content) }
    }

    @Test
    fun `half of a surrogate pair is refused in a text`() {
        val tokenizer = Tokenizer.load(demo.parentFile)
        refused<InputException>("not valid Unicode at character 1") { tokenizer.encode("a\ud800b") }
        refused<InputException>("not valid Unicode at character 0") { tokenizer.encode("\udc00") }
    }

    @Test
    fun `long texts take time in proportion`() {
        val kinds = FormatVectors.tokenizers().filterKeys { it in listOf("demo", "qwen", "llama2", "added") }
        for (tokenizer in kinds.values) {
            for (run in listOf("a", " ", "ab ", "\u4e16", "<|", "\ud83d\ude42", "'", "\u2581")) {
                val text = run.repeat(100_000 / run.length)
                soon { tokenizer.decode(tokenizer.encode(text)) }
            }
        }
    }

    private companion object {
        const val TEXT = "{\"Sequence\": {\"id\": \"A\"}}"
    }
}
