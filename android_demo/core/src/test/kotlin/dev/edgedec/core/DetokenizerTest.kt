package dev.edgedec.core

import java.text.Normalizer
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test

class DetokenizerTest {
    private val tokenizers by lazy { FormatVectors.tokenizers() }

    /** Checks pieces against the text of the same ids by another way: all at once, by Java. */
    private fun joinedIsText(push: (TextStream, Int) -> String) {
        val tokenizer = Tokenizer.load(demoBundle.resolve("tokenizer"))
        draws(300) { random ->
            val ids = IntArray(random.nextInt(40)) { 5 + random.nextInt(4091) }
            val stream = tokenizer.stream()
            val pieces = ids.map { push(stream, it) } + stream.flush()
            if (pieces.any(::isUnpaired)) throw AssertionError("half a character in $pieces")
            if (pieces.joinToString("") != tokenizer.decode(ids)) throw AssertionError("$pieces")
        }
    }

    @Test
    fun `pieces joined are the text`() = joinedIsText { stream, id -> stream.push(id) }

    @Test
    fun `a stream that ends characters early is flagged`() = mustFlag {
        joinedIsText { stream, id -> stream.push(id) + stream.flush() }
    }

    private fun comesBack(encode: (Tokenizer, String) -> IntArray) {
        for ((name, tokenizer) in tokenizers.filterKeys { it in listOf("demo", "gpt2", "llama3", "digits") }) {
            draws(300) { random ->
                val text = random.text(random.nextInt(50))
                val found = tokenizer.decode(encode(tokenizer, text))
                if (found != text) throw AssertionError("$name: '$text' became '$found'")
            }
        }
    }

    @Test
    fun `bytes as characters come back as they were`() =
        comesBack { tokenizer, text -> tokenizer.encode(text, addSpecialTokens = false) }

    @Test
    fun `an encoder that normalises is flagged`() = mustFlag {
        comesBack { tokenizer, text -> tokenizer.encode(Normalizer.normalize(text, Normalizer.Form.NFC), false) }
    }

    @Test
    fun `any ids are text, also those that are no tokens`() {
        for (tokenizer in tokenizers.values) draws(100) { random ->
            val ids = IntArray(random.nextInt(40)) { random.nextInt(tokenizer.vocabSize + 2) - 1 }
            assertFalse(isUnpaired(tokenizer.decode(ids)))
        }
    }

    @Test
    fun `UTF-8 is decoded as Unicode advises`() {
        // The examples of its chapter 3, and ends in the middle.
        val cases = mapOf(
            "61 F1 80 80 E1 80 C2 62 80 63 80 BF 64" to "a\ufffd\ufffd\ufffdb\ufffdc\ufffd\ufffdd",
            "C0 AF E0 80 BF F0 81 82 41" to "\ufffd".repeat(8) + "A",
            "ED A0 80 ED BF BF ED AF 41" to "\ufffd".repeat(8) + "A",
            "F4 91 92 93 FF 41 80 BF 42" to "\ufffd".repeat(5) + "A\ufffd\ufffdB",
            "E1 80 E2 F0 91 92 F1 BF 41" to "\ufffd\ufffd\ufffd\ufffdA",
            "F0 9F 99" to "\ufffd", "E2 82" to "\ufffd", "C3" to "\ufffd", "F4 8F BF BF" to "\udbff\udfff",
        )
        for ((hex, text) in cases) {
            val bytes = hex.split(' ').map { it.toInt(16).toByte() }.toByteArray()
            val whole = Utf8()
            assertEquals(text, whole.push(bytes) + whole.flush(), hex)
            val split = Utf8()
            assertEquals(text, bytes.joinToString("") { split.push(byteArrayOf(it)) } + split.flush(), hex)
            if ('\ufffd' in text) assertNull(Utf8.strict(bytes)) else assertEquals(text, Utf8.strict(bytes))
        }
    }

    @Test
    fun `valid UTF-8 is decoded as Java does`() = draws(300) { random ->
        val text = random.text(30)
        assertEquals(text, Utf8.strict(text.toByteArray()))
    }

    @Test
    fun `a decoder that is not known is refused by name`() {
        fun scheme(json: String) = Scheme.read(jsonObject(json.toByteArray())?.let { Fields(it, "decoder") })
        val wrong = mapOf(
            "{\"type\": \"WordPiece\"}" to "WordPiece",
            "{\"type\": \"Sequence\", \"decoders\": []}" to "none",
            "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"ByteFallback\"}]}" to
                "ByteFallback",
            "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Fuse\"}]}" to "ByteLevel",
            "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"b\"}" to "Replace",
            "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}" to "Strip",
        )
        for ((json, name) in wrong) refused<BundleException>("decoder ($name) is unknown here") { scheme(json) }
        refused<BundleException>("decoder (none)") { Scheme.read(null) }
        refused<BundleException>("type is missing") { scheme("{}") }
    }
}
