package dev.edgedec.core

import java.io.File
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.double
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.long

/** The folder of the vectors that Python writes; another one tries more of them than are committed. */
val vectors = File(System.getProperty("vectors") ?: "../vectors")

fun vectorFile(name: String): JsonObject = Json.parseToJsonElement(File(vectors, name).readText()).jsonObject

fun JsonObject.list(name: String): JsonArray = getValue(name).jsonArray
fun JsonObject.int(name: String): Int = getValue(name).jsonPrimitive.int
fun JsonObject.long(name: String): Long = getValue(name).jsonPrimitive.long
fun JsonObject.double(name: String): Double = getValue(name).jsonPrimitive.double
fun JsonObject.text(name: String): String = getValue(name).jsonPrimitive.content
fun JsonObject.ints(name: String): IntArray = list(name).map { it.jsonPrimitive.int }.toIntArray()
fun JsonObject.key(): Long = java.lang.Long.parseUnsignedLong(text("key"))

/** Returns sampling options from those that differ from the defaults, by their names in Python. */
fun sampling(changed: JsonObject, seed: Long): Sampling = changed.entries.fold(Sampling(seed = seed)) { params, (name, value) ->
    fun number() = value.jsonPrimitive.double
    when (name) {
        "temperature" -> params.copy(temperature = number())
        "top_k" -> params.copy(topK = value.jsonPrimitive.int)
        "top_p" -> params.copy(topP = number())
        "min_p" -> params.copy(minP = number())
        "repetition_penalty" -> params.copy(repetitionPenalty = number())
        "presence_penalty" -> params.copy(presencePenalty = number())
        "frequency_penalty" -> params.copy(frequencyPenalty = number())
        "logit_bias" -> params.copy(logitBias = biases(value))
        else -> throw AssertionError("no option $name")
    }
}

private fun biases(value: JsonElement): Map<Int, Double> =
    value.jsonObject.entries.associate { (token, bias) -> token.toInt() to bias.jsonPrimitive.double }
