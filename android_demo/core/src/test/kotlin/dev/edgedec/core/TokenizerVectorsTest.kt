package dev.edgedec.core

import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Assumptions.assumeTrue
import org.junit.jupiter.api.Test

/** Ids, pieces and texts that Python's runtime gives. */
class TokenizerVectorsTest {
    private val vectors by lazy { FormatVectors.read("tokens.json").jsonObject }
    private val tokenizers by lazy { FormatVectors.tokenizers(vectors) }

    private fun cases(of: JsonObject, check: (Tokenizer, JsonObject) -> Unit) {
        val cases = of.getValue("cases").objects()
        assertTrue(cases.size > 100)
        for (case in cases) check(tokenizers.getValue(case.string("tokenizer")), case)
    }

    private fun stream(tokenizer: Tokenizer, ids: IntArray, prompt: IntArray = IntArray(0)): List<String> {
        val stream = tokenizer.stream(prompt)
        return ids.map { stream.push(it) } + stream.flush()
    }

    @Test
    fun `texts become Python's ids`() = cases(vectors) { tokenizer, case ->
        val special = case.string("add_special_tokens").toBoolean()
        val found = tokenizer.encode(case.string("text"), special)
        assertArrayEquals(case.ints("ids"), found, "$case")
    }

    @Test
    fun `ids become Python's pieces`() = cases(vectors) { tokenizer, case ->
        assertEquals(case.strings("pieces"), stream(tokenizer, case.ints("ids")), "$case")
        assertEquals(case.string("decoded"), tokenizer.decode(case.ints("ids")), "$case")
    }

    @Test
    fun `any ids after any prompt become Python's pieces`() {
        assumeTrue(FormatVectors.has("decodes.json"))
        cases(FormatVectors.read("decodes.json").jsonObject) { tokenizer, case ->
            val pieces = stream(tokenizer, case.ints("ids"), case.ints("prompt"))
            val expected = case.strings("pieces")
            // Of invalid bytes Python tells some a token later.
            if (expected.none { '\ufffd' in it }) assertEquals(expected, pieces, "$case")
            assertEquals(expected.joinToString(""), pieces.joinToString(""), "$case")
            assertEquals(case.string("decoded"), tokenizer.decode(case.ints("ids")), "$case")
        }
    }
}
