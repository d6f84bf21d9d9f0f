package dev.edgedec.core

import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.booleanOrNull

/**
 * A JSON object whose fields are read with a check of their type.
 *
 * @property where it stands, for messages
 */
internal class Fields(val raw: JsonObject, val where: String) {
    val names: Set<String> get() = raw.keys

    /** Whether there is such a field, and it is not null. */
    fun has(name: String): Boolean = raw[name].let { it != null && it !is JsonNull }

    /** A text that is not empty. */
    fun text(name: String): String =
        raw[name].asText()?.takeIf { it.isNotEmpty() } ?: throw wrong(name, "a text")

    /** A text, which may be empty. */
    fun anyText(name: String): String = raw[name].asText() ?: throw wrong(name, "a text")

    /** A text, which may be empty; [default] if there is none. */
    fun textOr(name: String, default: String): String = if (has(name)) anyText(name) else default

    fun flagOr(name: String, default: Boolean): Boolean =
        if (!has(name)) default
        else (raw[name] as? JsonPrimitive)?.takeIf { !it.isString }?.booleanOrNull ?: throw wrong(name, "true or false")

    /** A whole number from 0 on. */
    fun size(name: String): Long =
        raw[name].asWhole()?.takeIf { it in 0 until LARGEST_SIZE } ?: throw wrong(name, "a size")

    /** The id of a token. */
    fun id(name: String): Int =
        raw[name].asWhole()?.takeIf { it in 0..Int.MAX_VALUE }?.toInt() ?: throw wrong(name, "a token id")

    fun ids(name: String): List<Int> = all(name, "a list of token ids") { item ->
        item.asWhole()?.takeIf { it in 0..Int.MAX_VALUE }?.toInt()
    }

    fun texts(name: String): List<String> = all(name, "a list of texts") { it.asText() }

    fun fields(name: String): Fields =
        Fields(raw[name] as? JsonObject ?: throw wrong(name, "an object"), "$where: ${oneLine(name)}")

    /** A list of objects. */
    fun each(name: String): List<Fields> = all(name, "a list of objects") { it as? JsonObject }
        .mapIndexed { at, item -> Fields(item, "$where: $name $at") }

    private fun <T : Any> all(name: String, expected: String, read: (JsonElement) -> T?): List<T> =
        (raw[name] as? JsonArray ?: throw wrong(name, expected)).map { read(it) ?: throw wrong(name, expected) }

    /** Refuses any other fields. */
    fun only(vararg known: String) {
        val other = names.firstOrNull { it !in known } ?: return
        throw BundleException("${oneLine(where)}: unknown field ${oneLine(other)}, expected ${known.joinToString()}")
    }

    /** The error for a field that is not as expected. */
    fun wrong(name: String, expected: String): BundleException {
        val found = raw[name]?.let { shown(it) } ?: "missing"
        return BundleException("${oneLine(where)}: ${oneLine(name)} is $found, expected $expected")
    }

    private fun shown(value: JsonElement): String =
        oneLine(value.toString()).let { if (it.length > SHOWN) it.take(SHOWN) + "..." else it }

    private companion object {
        const val LARGEST_SIZE = 1L shl 62
        const val SHOWN = 40
    }
}

internal fun JsonElement?.asText(): String? = (this as? JsonPrimitive)?.takeIf { it.isString }?.content

// Not longOrNull, which reads "1e2" as well.
internal fun JsonElement?.asWhole(): Long? = (this as? JsonPrimitive)?.takeIf { !it.isString }?.content?.toLongOrNull()

/** A text from elsewhere, fit for a message of one line. */
internal fun oneLine(text: String): String {
    val short = text.take(200)
    return buildString {
        var at = 0
        while (at < short.length) {
            val char = short.codePointAt(at)
            if (isPrintable(char)) appendCodePoint(char) else append('?')
            at += Character.charCount(char)
        }
    }
}

/** As Python's `str.isprintable`: no white space but a space, and no control, format or unpaired character. */
internal fun isPrintable(char: Int): Boolean = char == ' '.code || when (Character.getType(char).toByte()) {
    Character.CONTROL, Character.FORMAT, Character.SURROGATE, Character.PRIVATE_USE, Character.UNASSIGNED,
    Character.LINE_SEPARATOR, Character.PARAGRAPH_SEPARATOR, Character.SPACE_SEPARATOR -> false
    else -> true
}
