package dev.edgedec.core

import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtException
import ai.onnxruntime.OrtLoggingLevel
import ai.onnxruntime.OrtSession
import java.io.File

/**
 * Weights on ONNX Runtime, loaded once and shared by all sessions; see edgedec/runtimes/onnx/model.py.
 *
 * Close it after its sessions.
 */
class OnnxModel private constructor(
    private val graph: Graph,
    private val found: Padding?,
    /** Threads of a pass. */
    val threads: Int,
    private val memory: Memory,
) : AutoCloseable {
    private val padding = found ?: Padding.NONE
    private var open = true

    val name: String get() = graph.facts.name
    val vocabSize: Int get() = graph.facts.vocabSize
    val eosIds: Set<Int> get() = graph.facts.eosIds

    /** Most tokens of a session: the kernel refuses passes that reach beyond the rotary tables, padding included. */
    val maxContext: Int get() = maxOf(1, graph.facts.maxContext - padding.slack)

    /** Whether a row's bits do not depend on the rows computed with it: any draft gives plain decoding's text. */
    val batchInvariant: Boolean get() = found != null

    /** Returns an empty session that holds up to [capacity] tokens. */
    fun open(capacity: Int): Session {
        if (!open) throw StateException("the model is closed: load it again")
        if (capacity !in 1..maxContext) {
            throw InputException("expected a capacity of 1..$maxContext tokens, got $capacity")
        }
        val used = graph.use()
        try {
            return OnnxSession(used, capacity, padding, memory)
        } catch (error: Exception) {
            used.close()
            throw error
        }
    }

    /** Frees the weights once all sessions are closed as well. */
    override fun close() {
        if (!open) return
        open = false
        graph.close()
    }

    companion object {
        /**
         * Loads a graph that `edgedec export` wrote.
         *
         * @param threads of a pass; null is one for each core, fewer for a model of a few megabytes
         * @param batchInvariant pad passes so that a row's bits do not depend on how many rows are
         *     computed with it, or refuse. Null does so where a padding achieves it, for models
         *     exported for it and for large ones; a small one is not padded. Pass false for a
         *     draft: only the target's logits decide the text.
         */
        fun load(
            role: Role,
            threads: Int? = null,
            memory: Memory = Memory.direct,
            batchInvariant: Boolean? = null,
        ): OnnxModel {
            val file = role.model
            val stored = OnnxFile.read(file, role.files)
            val facts = GraphFacts.parse(stored.metadata, file.path)
            val count = threads ?: defaultThreads(stored.weightBytes)
            val graph = open(file, facts, count)
            try {
                val paddings = when {
                    batchInvariant == true || graph.ownRows -> Paddings.HERE.asked
                    stored.weightBytes >= Padding.LARGE_BYTES -> Paddings.HERE.usual
                    else -> Paddings.HERE.free
                }
                val found = if (batchInvariant == false) null else search(graph, paddings, memory)
                if (batchInvariant == true && found == null) {
                    throw EdgedecException(
                        "$file: no padding makes rows independent of each other on this machine: " +
                            "load it without batchInvariant",
                    )
                }
                return OnnxModel(graph, found, count, memory)
            } catch (error: Exception) {
                graph.close()
                throw error
            }
        }

        private fun open(file: File, facts: GraphFacts, threads: Int): Graph {
            val inference = try {
                val environment = OrtEnvironment.getEnvironment()
                environment.setTelemetry(false)
                options(threads).use { environment.createSession(file.path, it) }
            } catch (error: OrtException) {
                throw BundleException("$file: ONNX Runtime cannot load it: ${error.message}", error)
            }
            try {
                return Graph.of(inference, facts, file.path)
            } catch (error: Exception) {
                inference.close()
                throw error
            }
        }

        private fun options(threads: Int) = OrtSession.SessionOptions().apply {
            setIntraOpNumThreads(threads)
            setInterOpNumThreads(1)
            setSessionLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_FATAL) // errors are thrown
            // Otherwise the file's name decides, and ONNX Runtime's own format was not checked.
            addConfigEntry("session.load_model_format", "ONNX")
            // Every pass has another total length, and a memory pattern kept for each would leak.
            setMemoryPatternOptimization(false)
            // A pool that never spins is no faster than one thread; one that spins for long takes
            // the core from the other model's pool.
            addConfigEntry("session.intra_op.spin_duration_us", "100")
        }

        private fun defaultThreads(weightBytes: Long): Int {
            val cores = Runtime.getRuntime().availableProcessors()
            return (weightBytes / BYTES_PER_THREAD).coerceIn(1L, cores.toLong()).toInt()
        }

        private const val BYTES_PER_THREAD = 1_500_000L

        private fun search(graph: Graph, paddings: List<Padding>, memory: Memory): Padding? {
            if (graph.facts.maxContext < PROBE_SLOTS) return null
            return KvCache(graph, PROBE_SLOTS, memory).use { cache ->
                Passes(graph, cache, memory).use { passes ->
                    val fitting = paddings.filter { graph.ownRows || it.attention == null }
                    findPadding(graph.facts.vocabSize, fitting) { padding, tokens, past ->
                        val rows = padding.rows(tokens.size, past)
                        passes.run(padding.pad(tokens, past), past, head = true, rows = rows)
                        tokens.indices.map { row ->
                            val logits = FloatArray(graph.facts.vocabSize)
                            passes.logits(passes.count, row, logits)
                            ComputedRow(logits, cache.slot(past + row))
                        }
                    }
                }
            }
        }
    }
}
