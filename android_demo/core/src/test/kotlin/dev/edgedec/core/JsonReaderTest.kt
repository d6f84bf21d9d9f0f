package dev.edgedec.core

import java.io.StringReader
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonPrimitive
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test

class JsonReaderTest {
    private fun parse(text: String) = jsonObject("{\"a\": $text}".toByteArray())?.get("a")

    @Test
    fun `values are read as the library reads them`() {
        val texts = listOf(
            "0", "-0", "12", "-1.5e3", "true", "false", "null", "\"\"", "\"a b\"", "[]", "{}", "[1, [2], {\"b\": 3}]",
            "\"\\u00e9\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "\"\\ud83d\\ude42\"", "\"\ud83d\ude42\"", "  [ ] ", "\"\\ud83d\"",
        )
        for (text in texts) {
            val expected = Json.parseToJsonElement(text)
            val found = parse(text)
            if (expected is JsonPrimitive && !expected.isString && expected.content.toDoubleOrNull() != null) {
                assertEquals(expected.content.toDouble(), (found as JsonPrimitive).content.toDouble(), 0.0)
            } else {
                assertEquals(expected, found, text)
            }
        }
    }

    @Test
    fun `what Python refuses is refused`() {
        val texts = listOf(
            "abc", "tru", "True", "nul", "01", "+1", ".5", "1.", "1e", "1e+", "0x10", "- 1", "--1", "1_000", "'a'", "a",
            "\"a", "\"\u0001\"", "\"\n\"", "\"\\x41\"", "\"\\u12g4\"", "\"\\u\uff11\uff11\uff11\uff11\"",
            "[1,]", "[,1]",
            "[1 2]", "[", "]", "{\"b\"}", "{b: 1}", "{\"b\": 1,}", "{\"b\" 1}", "1 // x", "/* */ 1", "", "1}, {",
            "1".repeat(5000), "nan", "infinity", "-inf", "\u00a01",
        )
        for (text in texts) assertNull(parse(text), text)
        assertNotNull(parse("1"))
    }

    @Test
    fun `not a number is one, as in Python`() {
        for (text in listOf("NaN", "Infinity", "-Infinity", "1e999")) assertNotNull(parse(text))
    }

    @Test
    fun `of equal names the last counts, and a byte order mark is skipped`() {
        val found = jsonObject("\ufeff{\"a\": 1, \"b\": 2, \"a\": 3}".toByteArray())
        assertEquals("{\"a\":3,\"b\":2}", found.toString())
    }

    @Test
    fun `nesting is bounded`() {
        for (open in listOf("[", "{\"a\":")) {
            assertNull(jsonObject(("{\"a\":" + open.repeat(1_000_000)).toByteArray()))
        }
        val deepest = JsonReader.MAX_DEPTH - 1
        assertNotNull(parse("[".repeat(deepest) + "]".repeat(deepest)))
        assertNull(parse("[".repeat(deepest + 1) + "]".repeat(deepest + 1)))
    }

    @Test
    fun `invalid UTF-8 is refused`() {
        val whole = "{\"a\": \"b\"}".toByteArray()
        for (wrong in listOf("ff", "c0 80", "ed a0 80", "e2 82")) {
            val bytes = wrong.split(' ').map { it.toInt(16).toByte() }.toByteArray()
            assertNull(jsonObject(whole.copyOfRange(0, 7) + bytes + whole.copyOfRange(7, whole.size)))
        }
        assertNotNull(jsonObject(whole))
    }

    @Test
    fun `any text is read or refused, and what was written is read again`() {
        draws(500) { random ->
            val written = JsonPrimitive(random.text(random.nextInt(30))).toString()
            assertEquals(Json.parseToJsonElement(written), JsonReader(StringReader(written)).element())
            val cut = StringBuilder("{\"a\": [1, {\"b\": $written}, null]}")
            repeat(random.nextInt(4)) { cut[random.nextInt(cut.length)] = "{}[],:\"\\ 1ae\u0000"[random.nextInt(13)] }
            jsonObject(cut.toString().toByteArray())
        }
    }
}
