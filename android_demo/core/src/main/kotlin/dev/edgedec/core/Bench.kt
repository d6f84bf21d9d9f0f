package dev.edgedec.core

import ai.onnxruntime.OrtEnvironment
import java.io.File
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.add
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlinx.serialization.json.putJsonArray

/** A session whose passes are timed, by a clock that all sessions of a bundle share. */
private class TimedSession(private val session: Session, private val spent: Spent) : Session by session {
    override fun prefill(tokens: IntArray, ended: () -> Boolean) = spent.time { session.prefill(tokens, ended) }

    override fun forward(chain: IntArray): Pass = spent.time { session.forward(chain) }
}

private class Spent {
    var ns = 0L

    inline fun <T> time(block: () -> T): T {
        val begin = System.nanoTime()
        return block().also { ns += System.nanoTime() - begin }
    }
}

/** Measures what benchmarks/sections/android_core.py asks for, a line of JSON at a time. */
private class Bench(private val folder: File, threads: Int) : AutoCloseable {
    private val options = DecoderOptions(threads = threads)
    private val spent = Spent()
    private val opened = Opened.open(folder, options) { TimedSession(it, spent) }

    fun about(): JsonObject = buildJsonObject {
        put("onnxruntime", OrtEnvironment.getEnvironment().version)
        put("java", System.getProperty("java.version"))
        put("first_open_s", opened.about.openS)
        put("exact", opened.about.exact)
    }

    fun answer(asked: Fields): JsonObject = when (val kind = asked.text("kind")) {
        "passes" -> passes(asked.tokens("tokens"), asked.tokens("chain"), asked.count("count"))
        "open" -> seconds(listOf(Opened.open(folder, options).use { it.about.openS }))
        "text" -> text(asked)
        else -> throw InputException("$kind: expected passes, open or text")
    }

    override fun close() = opened.close()

    private fun passes(context: IntArray, chain: IntArray, count: Int): JsonObject =
        opened.target.open(context.size + chain.size).use { session ->
            session.prefill(context)
            val found = ArrayList<Double>()
            // The first ones make buffers and are compiled.
            repeat(WARM_UPS + count) { turn ->
                val begin = System.nanoTime()
                session.forward(chain)
                if (turn >= WARM_UPS) found += (System.nanoTime() - begin) / 1e9
                session.rollback(context.size)
            }
            seconds(found)
        }

    private fun text(asked: Fields): JsonObject {
        val request = Request(
            prompt = asked.text("prompt"),
            sampling = Sampling(temperature = asked.textOr("temperature", "0").toDouble(), seed = 0),
            drafter = if (asked.text("way") == "plain") Drafter.NONE else Drafter.AUTO,
            maxNewTokens = asked.count("tokens"),
            ignoreEos = true,
        )
        val ids = ArrayList<Int>()
        var begin = 0L
        // The first round is left out, as in the time per token: it includes the prompt.
        val figures = opened.generate(request, Cancellation()) { tokens ->
            ids += tokens.map { it.token }
            if (begin == 0L) {
                begin = System.nanoTime()
                spent.ns = 0
            }
        }
        val outsideNs = System.nanoTime() - begin - spent.ns
        return buildJsonObject {
            figures.json().forEach { (name, value) -> put(name, value) }
            put("outside_s", outsideNs / 1e9 / maxOf(1, figures.rounds - 1))
            putJsonArray("ids") { ids.forEach { add(it) } }
        }
    }

    private fun seconds(found: List<Double>) = JsonObject(mapOf("seconds" to JsonArray(found.map { JsonPrimitive(it) })))

    private fun Fields.tokens(name: String) = ids(name).toIntArray()

    private companion object {
        const val WARM_UPS = 3
    }
}

fun main(args: Array<String>) {
    val bench = try {
        Bench(File(args[0]), args[1].toInt())
    } catch (error: EdgedecException) {
        return println(buildJsonObject { put("error", error.message) })
    }
    bench.use {
        println(it.about())
        for (line in generateSequence(::readLine)) {
            val raw = jsonObject(line.toByteArray()) ?: throw InputException("expected an object in each line")
            println(it.answer(Fields(raw, "request")))
        }
    }
}
