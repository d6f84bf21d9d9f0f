package dev.edgedec.core

import ai.onnxruntime.NodeInfo
import ai.onnxruntime.OnnxJavaType
import ai.onnxruntime.OrtSession
import ai.onnxruntime.TensorInfo

/** Facts that the exporter wrote into a graph's metadata; see edgedec/runtimes/onnx/graph.py. */
internal data class GraphFacts(
    val name: String,
    val layers: Int,
    val kvHeads: Int,
    val vocabSize: Int,
    val maxContext: Int,
    val topK: Int,
    val eosIds: Set<Int>,
) {
    companion object {
        private const val KEY = "edgedec"
        private const val VERSION = 1L

        /** Of graphs whose layers keep more than keys and values. */
        private const val STATES = 2L

        /** Reads a graph's metadata; [where] names the file in messages. */
        fun parse(metadata: Map<String, String>, where: String): GraphFacts {
            val text = metadata[KEY]
                ?: throw BundleException("$where: not exported by edgedec: use `edgedec export`")
            val raw = jsonObject(text.toByteArray())
                ?: throw BundleException("$where: its metadata is damaged: export it again")
            val fields = Fields(raw, where)
            if (fields.size("graph_version") == STATES) {
                throw BundleException("$where: this app computes attention only, and layers of this model have short convolutions in its place: choose another model")
            }
            if ("varied" in raw) {
                throw BundleException("$where: this app computes layers of one kind, and the heads of this model differ by layer: choose another model")
            }
            if (fields.size("graph_version") != VERSION) {
                throw fields.wrong("graph_version", "$VERSION: export it again")
            }
            return GraphFacts(
                name = fields.text("name"),
                layers = fields.count("layers"),
                kvHeads = fields.count("kv_heads"),
                vocabSize = fields.count("vocab_size"),
                maxContext = fields.count("max_context"),
                topK = fields.count("top_k"),
                eosIds = fields.ids("eos_ids").toSet(),
            )
        }
    }
}

/**
 * An inference session and the facts of its graph, shared by a model's sessions.
 *
 * @property kvType of the cache's numbers: FLOAT, or INT8 if they are quantised
 * @property kvWidth numbers of a head's key or value
 * @property ownRows whether attention computes the rows given by `attention_rows`, so that it can
 *     be padded without the rest of the graph
 */
internal class Graph private constructor(
    val inference: OrtSession,
    val facts: GraphFacts,
    val kvType: OnnxJavaType,
    val kvWidth: Int,
    val ownRows: Boolean,
) : AutoCloseable {
    // Closing a session that computes ends the process, so it waits for its last user.
    private var users = 1

    /** Counts a session as a user of the weights until it calls [close]. */
    @Synchronized
    fun use(): Graph {
        if (users == 0) throw StateException("the model is closed: load it again")
        users++
        return this
    }

    /** Ends one use; the last one frees the weights. */
    @Synchronized
    override fun close() {
        if (users == 0) return
        if (--users == 0) inference.close()
    }

    companion object {
        private val INPUTS = setOf(
            "input_ids", "position_ids", "attention_bias", "seqlens_k", "total_sequence_length", "rows",
        )
        private val OWN_ROWS = setOf("attention_rows", "computed_rows")
        private val OUTPUTS = setOf("logits", "top_logits", "top_ids")

        /** Checks that inputs and outputs follow the contract, and reads the cache's type. */
        fun of(inference: OrtSession, facts: GraphFacts, where: String): Graph {
            val inputs = inference.inputInfo
            val outputs = inference.outputInfo
            val unexpected = BundleException("$where: unexpected inputs or outputs: export it again")
            if (facts.layers > inputs.size) throw unexpected // before as many names are made
            val parts = (0 until facts.layers).flatMap { listOf("key_$it", "value_$it") }
            val past = parts.map { "past_$it" }
            val present = parts.map { "present_$it" }
            val ownRows = inputs.keys.containsAll(OWN_ROWS)
            val expected = INPUTS + past + if (ownRows) OWN_ROWS else emptySet()
            if (inputs.keys != expected || outputs.keys != OUTPUTS + present) throw unexpected
            val caches = past.map { tensor(inputs, it) } + present.map { tensor(outputs, it) }
            val ends = listOf("logits", "top_logits", "top_ids").map { tensor(outputs, it)?.shape?.lastOrNull() }
            val heads = caches.map { it?.shape?.getOrNull(1) }.toSet()
            val columns = listOf(facts.vocabSize, facts.topK, facts.topK).map { it.toLong() }
            if (ends != columns || heads != setOf(facts.kvHeads.toLong())) {
                throw BundleException("$where: its metadata does not fit its graph: export it again")
            }
            val (type, width) = caches.map { it?.type to it?.shape?.last() }.toSet().singleOrNull()
                ?: throw BundleException("$where: caches of different types: export it again")
            if ((type != OnnxJavaType.FLOAT && type != OnnxJavaType.INT8) || width == null || width !in 1..MAX_WIDTH) {
                throw BundleException("$where: caches of an unknown type $type: export it again")
            }
            return Graph(inference, facts, type, width.toInt(), ownRows)
        }

        private const val MAX_WIDTH = 1L shl 16

        private fun tensor(nodes: Map<String, NodeInfo>, name: String) = nodes[name]?.info as? TensorInfo
    }
}

/** A whole number from 1 on. */
internal fun Fields.count(name: String): Int =
    size(name).takeIf { it in 1..Int.MAX_VALUE }?.toInt() ?: throw wrong(name, "a count")
