package dev.edgedec.core

import java.io.File
import java.time.Duration
import java.util.Random
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTimeoutPreemptively
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.function.ThrowingSupplier

/** The vectors that Python writes and reads, too. */
internal object FormatVectors {
    // Another folder of the same shape, for more cases than are kept in the repository.
    private val folder = File(System.getProperty("edgedec.vectors") ?: "../vectors")
    val repository = File("../..").canonicalFile

    fun has(name: String): Boolean = File(folder, name).exists()

    fun read(name: String): JsonElement = Json.parseToJsonElement(File(folder, name).readText())

    fun tokenizers(of: JsonObject): Map<String, Tokenizer> =
        of.getValue("tokenizers").jsonObject.mapValues { (_, path) ->
            val name = path.jsonPrimitive.content
            Tokenizer.load(if (name.endsWith(".json")) File(folder, name) else File(repository, name))
        }

    /** All tokenizers of the vectors. */
    fun tokenizers(): Map<String, Tokenizer> = tokenizers(read("tokens.json").jsonObject)
}

internal val demoBundle = File(FormatVectors.repository, "edgedec/models/demo/bundle")

internal fun JsonObject.string(name: String): String = getValue(name).jsonPrimitive.content

internal fun JsonObject.strings(name: String): List<String> = getValue(name).jsonArray.map { it.jsonPrimitive.content }

internal fun JsonElement.objects(): List<JsonObject> = (this as JsonArray).map { it.jsonObject }

/** Tries something on [count] seeded draws, and names the draw that failed. */
internal fun draws(count: Int, seed: Long = 20261125, body: (Random) -> Unit) {
    for (draw in 0 until count) {
        try {
            body(Random(seed + draw))
        } catch (failed: Throwable) {
            throw AssertionError("draw $draw of seed $seed: ${failed.message}", failed)
        }
    }
}

/** What [body] returns; it fails if that takes minutes, as where time grows with the square of a length. */
internal fun <T> soon(body: () -> T): T = assertTimeoutPreemptively(Duration.ofSeconds(30), ThrowingSupplier { body() })

/** Checks that a property flags its broken twin. */
internal fun mustFlag(body: () -> Unit) {
    assertThrows(AssertionError::class.java) { body() }
}

/** Checks that something is refused in one sentence that has these words. */
internal inline fun <reified E : EdgedecException> refused(words: String, crossinline body: () -> Unit) {
    val message = assertThrows(E::class.java) { body() }.message.orEmpty()
    assertTrue(words in message, "expected '$words' in: $message")
    assertFalse('\n' in message, message)
    assertTrue(message.length < 1000, message)
}

/** A text of characters of all planes, with white space, digits and shortened forms among them. */
internal fun Random.text(length: Int): String = buildString {
    repeat(length) {
        when (nextInt(8)) {
            0, 1 -> append(' ' + nextInt(95))
            2 -> append(" \t\n\r\u0085\u00a0\u2028\u3000"[nextInt(8)])
            3 -> append(listOf("'s", "'LL", "'re", "12", "1234", "\u2581", "e\u0301", "\ud55c")[nextInt(8)])
            4 -> appendCodePoint(0x80 + nextInt(0x580))
            5 -> appendCodePoint(0x600 + nextInt(0xd200))
            else -> appendCodePoint(0x10000 + nextInt(0x100000))
        }
    }
}
