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
fun sampling(changed: JsonObject, seed: Long): Sampling =
    changed.entries.fold(Sampling(seed = seed)) { params, (name, value) -> params.with(name, value) }

private fun Sampling.with(name: String, value: JsonElement): Sampling = when (name) {
    "temperature" -> copy(temperature = value.jsonPrimitive.double)
    "top_k" -> copy(topK = value.jsonPrimitive.int)
    "top_p" -> copy(topP = value.jsonPrimitive.double)
    "min_p" -> copy(minP = value.jsonPrimitive.double)
    "repetition_penalty" -> copy(repetitionPenalty = value.jsonPrimitive.double)
    "presence_penalty" -> copy(presencePenalty = value.jsonPrimitive.double)
    "frequency_penalty" -> copy(frequencyPenalty = value.jsonPrimitive.double)
    "logit_bias" -> copy(logitBias = biases(value))
    else -> throw AssertionError("no option $name")
}

private fun biases(value: JsonElement): Map<Int, Double> =
    value.jsonObject.entries.associate { (token, bias) -> token.toInt() to bias.jsonPrimitive.double }
