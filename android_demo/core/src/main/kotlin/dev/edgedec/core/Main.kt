package dev.edgedec.core

import java.io.File
import java.io.FileDescriptor
import java.io.FileOutputStream
import java.io.PrintStream
import java.util.Locale
import java.util.concurrent.CountDownLatch
import kotlin.system.exitProcess
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.add
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlinx.serialization.json.putJsonArray

private const val USAGE = """usage: decode BUNDLE PROMPT [options]

  --drafter NAME        model, lookup, none or auto, which is both in turn (default: auto)
  --draft-length N      tokens to draft in each round (default: by measured costs)
  --temperature T       0 is greedy (default: 0)
  --top-k K, --top-p P, --min-p P
  --seed N              of all random choices (default: drawn)
  --max-new-tokens N    (default: 128)
  --threads N           of each model (default: by its size and the cores)
  --batch-invariant     refuse where a draft might change the text
  --ids                 print token ids instead of text
  --json                print ids, text and figures as one JSON object"""

/** What the command line asks for. */
internal class Arguments(
    val bundle: File,
    val request: Request,
    val options: DecoderOptions,
    val json: Boolean,
    val ids: Boolean,
) {
    companion object {
        private val FLAGS = setOf("--json", "--ids", "--batch-invariant")
        private val VALUES = setOf(
            "--drafter", "--draft-length", "--temperature", "--top-k", "--top-p", "--min-p", "--seed",
            "--max-new-tokens", "--threads",
        )

        /** @throws InputException in one sentence */
        fun parse(args: List<String>): Arguments {
            val values = HashMap<String, String>()
            val places = ArrayList<String>()
            val rest = ArrayDeque(args)
            while (rest.isNotEmpty()) {
                val word = rest.removeFirst()
                val name = word.substringBefore('=')
                when {
                    !word.startsWith("--") -> places += word
                    word in FLAGS -> values[word] = ""
                    name !in VALUES -> throw InputException("$name: unknown option: see decode --help")
                    '=' in word -> values[name] = word.substringAfter('=')
                    else -> values[name] = rest.removeFirstOrNull() ?: throw InputException("$name: expected a value")
                }
            }
            if (places.size != 2) throw InputException("expected a bundle and a prompt, got ${places.size} of them")
            return of(places[0], places[1], values)
        }

        private fun of(bundle: String, prompt: String, values: Map<String, String>): Arguments {
            fun <T> value(name: String, expected: String, read: (String) -> T?): T? = values[name]?.let {
                read(it) ?: throw InputException("$name $it: expected $expected")
            }

            fun number(name: String) = value(name, "a number", String::toDoubleOrNull)
            fun whole(name: String, least: Int) =
                value(name, "a whole number from $least on") { text -> text.toIntOrNull()?.takeIf { it >= least } }

            val drafter = value("--drafter", "model, lookup, none or auto") { name ->
                Drafter.values().firstOrNull { it.name.lowercase(Locale.ROOT) == name }
            }
            val sampling = Sampling(
                temperature = number("--temperature") ?: 0.0,
                topK = whole("--top-k", 0) ?: 0,
                topP = number("--top-p") ?: 1.0,
                minP = number("--min-p") ?: 0.0,
                seed = value("--seed", "a whole number", String::toLongOrNull),
            )
            sampling.check()
            val request = Request(
                prompt = prompt,
                sampling = sampling,
                drafter = drafter ?: Drafter.AUTO,
                draftLength = whole("--draft-length", 0),
                maxNewTokens = whole("--max-new-tokens", 1) ?: 128,
            )
            val options = DecoderOptions(
                threads = whole("--threads", 1),
                batchInvariant = true.takeIf { "--batch-invariant" in values },
            )
            return Arguments(File(bundle), request, options, "--json" in values, "--ids" in values)
        }
    }
}

/** Prints a text as it comes, and keeps it. */
private class Printer(private val arguments: Arguments, private val out: PrintStream) : Listener {
    private val tokens = ArrayList<Emission>()
    private val done = CountDownLatch(1)
    private var error: String? = null

    override fun onTokens(tokens: List<Emission>) {
        this.tokens += tokens
        if (arguments.json) return
        tokens.forEach { out.print(if (arguments.ids) "${it.token} " else it.text) }
        out.flush()
    }

    override fun onEnd(figures: Figures) {
        if (arguments.json) out.println(json(figures)) else out.println("\n\n${line(figures)}")
        done.countDown()
    }

    override fun onError(message: String) {
        error = message
        done.countDown()
    }

    /** Waits for the end of the text; returns what went wrong. */
    fun await(): String? {
        done.await()
        return error
    }

    private fun json(figures: Figures): JsonObject = buildJsonObject {
        putJsonArray("ids") { tokens.forEach { add(it.token) } }
        put("text", tokens.joinToString("") { it.text })
        put("figures", figures.json())
    }

    private fun line(figures: Figures): String {
        val speed = figures.tokensPerSecond?.let { "%.0f tokens/s".format(Locale.ROOT, it) } ?: "-"
        return "%d tokens (%s), %s, first after %.0f ms, %d of %d drafted accepted, %.2f tokens a pass, seed %d".format(
            Locale.ROOT, figures.newTokens, figures.reason, speed, figures.ttftS * 1000, figures.accepted,
            figures.drafted, figures.blockEfficiency, figures.seed,
        )
    }
}

/** Figures under the names that the Python runtime gives them. */
internal fun Figures.json(): JsonObject = buildJsonObject {
    put("reason", reason)
    put("prompt_tokens", promptTokens)
    put("reused_tokens", reusedTokens)
    put("new_tokens", newTokens)
    put("target_passes", rounds)
    put("drafted_tokens", drafted)
    put("accepted_tokens", accepted)
    put("ttft_s", ttftS)
    put("tpot_s", JsonPrimitive(tpotS))
    put("tokens_per_second", JsonPrimitive(tokensPerSecond))
    put("acceptance_rate", JsonPrimitive(acceptanceRate))
    put("block_efficiency", blockEfficiency)
    put("seed", seed)
}

/** Decodes as [args] ask; returns the exit code. */
internal fun decode(args: List<String>, out: PrintStream, err: PrintStream): Int {
    if ("--help" in args || args.isEmpty()) {
        out.println(USAGE)
        return 0
    }
    val error = try {
        val arguments = Arguments.parse(args)
        val printer = Printer(arguments, out)
        val decoder = Decoder(arguments.options)
        decoder.open(arguments.bundle)
        decoder.generate(arguments.request, printer)
        printer.await().also {
            decoder.close()
            decoder.join()
        }
    } catch (error: InputException) {
        error.message
    }
    if (error == null) return 0
    err.println("decode: $error")
    return 2
}

fun main(args: Array<String>) {
    fun utf8(to: FileDescriptor) = PrintStream(FileOutputStream(to), true, "UTF-8")
    exitProcess(decode(args.toList(), utf8(FileDescriptor.out), utf8(FileDescriptor.err)))
}
