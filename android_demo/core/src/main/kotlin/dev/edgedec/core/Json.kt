package dev.edgedec.core

import java.io.ByteArrayInputStream
import java.io.InputStream
import java.io.InputStreamReader
import java.io.Reader
import java.nio.charset.CharacterCodingException
import java.nio.charset.CodingErrorAction
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive

/** The text is not JSON; see [JsonReader]. */
internal class JsonException(message: String) : Exception(message)

/**
 * Reads JSON from elsewhere, as strictly as Python's `json`, and in bounded memory.
 *
 * The library's own parser takes words without quotes, 01 and control characters for values. Its tree of a large
 * tokenizer.json fills the heap of most apps: here a caller can read value by value.
 *
 * @throws JsonException from every function: not JSON, or of more than [MAX_DEPTH] levels or [MAX_VALUES] values
 */
internal class JsonReader(private val source: Reader) {
    private val buffer = CharArray(1 shl 13)
    private var filled = 0
    private var next = 0
    private var before = 0L
    private var depth = 0
    private var values = 0
    private val text = StringBuilder()

    init {
        if (current() == BYTE_ORDER_MARK) next++
    }

    /** The value that comes next, whatever it is. */
    fun element(): JsonElement {
        if (++values > MAX_VALUES) throw wrong("more than $MAX_VALUES values")
        return when (peek()) {
            '{'.code -> JsonObject(LinkedHashMap<String, JsonElement>().also { all -> fields { all[it] = element() } })
            '['.code -> JsonArray(ArrayList<JsonElement>().also { all -> items { all += element() } })
            '"'.code -> JsonPrimitive(string())
            else -> literal()
        }
    }

    /** Reads an object; [each] is given a field's name and must read its value. */
    fun fields(each: (String) -> Unit) = nested('{', '}') {
        val name = string()
        expect(':')
        each(name)
    }

    /** Reads a list; [each] must read an item. */
    fun items(each: () -> Unit) = nested('[', ']', each)

    fun string(): String {
        expect('"')
        text.setLength(0)
        while (true) {
            if (text.length > LONGEST_TEXT) throw wrong("a text of more than $LONGEST_TEXT characters")
            when (val char = take()) {
                '"' -> return text.toString()
                '\\' -> text.append(escaped())
                in '\u0000'..'\u001f' -> throw wrong("a control character in a text")
                else -> text.append(char)
            }
        }
    }

    /** A whole number; null if it is another word. */
    fun whole(): Long? = literal().asWhole()

    /** Whether a text comes next. */
    fun isString(): Boolean = peek() == '"'.code

    /** Checks that nothing follows. */
    fun end() {
        if (peek() != END) throw wrong("something behind the end")
    }

    private fun nested(open: Char, close: Char, each: () -> Unit) {
        expect(open)
        if (++depth > MAX_DEPTH) throw wrong("more than $MAX_DEPTH levels")
        if (!taken(close)) {
            do each() while (taken(','))
            expect(close)
        }
        depth--
    }

    private fun escaped(): Char = when (val char = take()) {
        '"', '\\', '/' -> char
        'b' -> '\b'
        'f' -> '\u000c'
        'n' -> '\n'
        'r' -> '\r'
        't' -> '\t'
        'u' -> (1..4).fold(0) { value, _ -> value * 16 + hex(take()) }.toChar()
        else -> throw wrong("an unknown escape")
    }

    private fun hex(char: Char): Int = when (char) {
        in '0'..'9' -> char - '0'
        in 'a'..'f' -> char - 'a' + 10
        in 'A'..'F' -> char - 'A' + 10
        else -> throw wrong("an unknown escape")
    }

    private fun literal(): JsonElement {
        peek()
        text.setLength(0)
        while (current().let { it != END && it.toChar() in LITERALS }) {
            if (text.length == LONGEST_NUMBER) throw wrong("a number of more than $LONGEST_NUMBER digits")
            text.append(take())
        }
        return when (val word = text.toString()) {
            "null" -> JsonNull
            "true" -> JsonPrimitive(true)
            "false" -> JsonPrimitive(false)
            "NaN", "Infinity", "-Infinity" -> JsonPrimitive(word.toDouble())
            else -> {
                if (!NUMBER.matches(word)) throw wrong("no value")
                JsonPrimitive(word.toLongOrNull() ?: word.toDouble())
            }
        }
    }

    private fun expect(char: Char) {
        if (!taken(char)) throw wrong("no '$char'")
    }

    private fun taken(char: Char): Boolean = (peek() == char.code).also { if (it) next++ }

    /** The next character that is not white space; it is not taken. */
    private fun peek(): Int {
        while (true) {
            val char = current()
            if (char != ' '.code && char != '\n'.code && char != '\r'.code && char != '\t'.code) return char
            next++
        }
    }

    private fun take(): Char {
        val char = current()
        if (char == END) throw wrong("no end")
        next++
        return char.toChar()
    }

    private fun current(): Int {
        if (next == filled) {
            before += filled
            next = 0
            filled = maxOf(0, source.read(buffer))
            if (filled == 0) return END
        }
        return buffer[next].code
    }

    private fun wrong(found: String) = JsonException("not JSON at character ${before + next}: $found")

    companion object {
        const val MAX_DEPTH = 128
        /** Of those that are kept; what is read value by value is not counted. */
        const val MAX_VALUES = 1 shl 18
        private const val LONGEST_TEXT = 1 shl 20
        private const val END = -1
        private const val BYTE_ORDER_MARK = 0xfeff
        // Python reads no longer ones, either.
        private const val LONGEST_NUMBER = 4300
        private const val LITERALS = "+-.0123456789INaefilnrstuyE"
        private val NUMBER = Regex("-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?")
    }
}

/** Reads characters; invalid UTF-8 is a [CharacterCodingException]. */
internal fun strictUtf8(bytes: InputStream): Reader =
    InputStreamReader(bytes, Charsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT))

/** The JSON object in these bytes; null if they are anything else. */
internal fun jsonObject(data: ByteArray): JsonObject? = try {
    val reader = JsonReader(strictUtf8(ByteArrayInputStream(data)))
    val found = reader.element()
    reader.end()
    found as? JsonObject
} catch (_: JsonException) {
    null
} catch (_: CharacterCodingException) {
    null
}
