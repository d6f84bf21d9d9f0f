package dev.edgedec.core

import ai.onnxruntime.OnnxJavaType.FLOAT
import ai.onnxruntime.OnnxJavaType.INT32
import ai.onnxruntime.OnnxJavaType.INT64
import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtException
import java.nio.FloatBuffer
import java.nio.LongBuffer

/**
 * Runs one session's passes over its cache, with inputs and outputs in memory that is wrapped once.
 *
 * Tensors are kept for each number of rows; between passes only the attention bias is wrapped again,
 * since its last dimension must be exactly the total length. See edgedec/runtimes/onnx/passes.py.
 *
 * [interrupt] and [close] may be called from any thread. ONNX Runtime ends the process if a closed
 * tensor is its input, so whatever touches a tensor or its memory holds the lock.
 */
internal class Passes(private val graph: Graph, private val cache: KvCache, private val memory: Memory) :
    AutoCloseable {
    private val environment = OrtEnvironment.getEnvironment()
    private val leastRows = leastRows(environment.version)
    private val interrupt = Interrupt()
    private val bindings = HashMap<Key, Binding>()
    private var inputs = Inputs(FIRST_ROWS, memory)
    private var outputs = Outputs(FIRST_HEAD_ROWS, graph.facts, memory)
    private var bias = memory.reserve(FIRST_BIAS_BYTES, BIAS)
    private var open = true

    /** Number of passes so far: the rows of the last one are valid. */
    var count = 0L
        @Synchronized get
        private set

    /** Asks the running pass, or the next one, to end with [InterruptedPass]. */
    fun interrupt() = interrupt.ask()

    /** Forgets a request that no pass has answered. */
    fun resume() = interrupt.forget()

    /**
     * Computes [tokens] into slots [past] and following.
     *
     * @param head whether logits are computed, of each token
     * @param rows rows that attention computes, by repeating the last one; more than tokens only if
     *     the graph's attention has rows of its own
     */
    @Synchronized
    fun run(tokens: IntArray, past: Int, head: Boolean, rows: Int = tokens.size) {
        if (!open) throw closed()
        interrupt.answer()
        count++
        val total = past + rows
        val key = Key(tokens.size, rows, head)
        val binding = bindings[key] ?: bind(key)
        inputs.set(tokens, past, total)
        wrapBias(rows, total).use { bias ->
            binding.inputs["attention_bias"] = bias
            try {
                graph.inference.run(binding.inputs, emptySet(), binding.outputs, interrupt.options).close()
            } catch (error: OrtException) {
                interrupt.answer()
                throw EdgedecException("ONNX Runtime could not run a pass: ${error.message}", error)
            } finally {
                binding.inputs.remove("attention_bias")
            }
        }
    }

    /** Copies the logits of a row of pass [of] into [into]. */
    @Synchronized
    fun logits(of: Long, row: Int, into: FloatArray) {
        checkValid(of)
        val columns = graph.facts.vocabSize
        outputs.logits.position(row * columns)
        outputs.logits.get(into, 0, columns)
    }

    /** Returns the most likely token of a row of pass [of]; of equals the lowest id. */
    @Synchronized
    fun best(of: Long, row: Int): Int {
        checkValid(of)
        val first = row * graph.facts.topK
        var sum = 0f
        for (column in first until first + graph.facts.topK) sum += outputs.topLogits[column]
        if (sum.isNaN()) throw EdgedecException("the model's logits contain NaN: export it again")
        return outputs.topIds[first].toInt()
    }

    /** Ends a pass that another thread runs, and frees all memory but the cache's. */
    override fun close() {
        interrupt.ask()
        synchronized(this) {
            if (!open) return
            open = false
            drop()
            inputs.close()
            outputs.close()
            bias.close()
            interrupt.close()
        }
    }

    private fun checkValid(of: Long) {
        if (!open) throw closed()
        if (of != count) {
            throw StateException("these rows were overwritten: read them before the next forward()")
        }
    }

    private fun wrapBias(rows: Int, total: Int): OnnxTensor {
        val bytes = Float.SIZE_BYTES * rows * total
        if (bytes > bias.buffer.capacity()) {
            val wider = minOf(2 * total, maxOf(cache.slots, total))
            val grown = memory.reserve(Float.SIZE_BYTES.toLong() * rows * wider, BIAS)
            bias.close()
            bias = grown
        }
        return bias.tensor(0, FLOAT, 1, 1, rows, total)
    }

    /** Wraps all but the attention bias for these numbers of rows. */
    private fun bind(key: Key): Binding {
        val wanted = if (key.head) key.count else leastRows
        if (key.count > inputs.rows) {
            val grown = Inputs(2 * key.count, memory)
            drop()
            inputs.close()
            inputs = grown
        }
        if (wanted > outputs.rows) {
            val grown = Outputs(2 * wanted, graph.facts, memory)
            drop()
            outputs.close()
            outputs = grown
        }
        if (bindings.size >= MAX_BINDINGS) drop()
        val own = inputs.tensors(key.count) + ("rows" to index(wanted) { it }) + attentionRows(key)
        val scored = outputs.tensors(wanted)
        val binding = Binding(HashMap(own + cache.past), scored + cache.present, own.values + scored.values)
        bindings[key] = binding
        return binding
    }

    private fun attentionRows(key: Key): Map<String, OnnxTensor> =
        if (!graph.ownRows) emptyMap()
        else mapOf(
            "attention_rows" to index(key.rows) { minOf(it, key.count - 1) },
            "computed_rows" to index(key.count) { it },
        )

    /** Returns a constant; a buffer of the heap is copied into the tensor's own memory. */
    private fun index(size: Int, value: (Int) -> Int): OnnxTensor {
        val values = LongArray(size) { value(it).toLong() }
        return OnnxTensor.createTensor(environment, LongBuffer.wrap(values), longArrayOf(size.toLong()))
    }

    private fun drop() {
        bindings.values.forEach { it.close() }
        bindings.clear()
    }

    private data class Key(val count: Int, val rows: Int, val head: Boolean)

    /** Tensors of a pass by name; [own] are closed with it, the cache's are not. */
    private class Binding(
        val inputs: MutableMap<String, OnnxTensor>,
        val outputs: Map<String, OnnxTensor>,
        private val own: List<OnnxTensor>,
    ) : AutoCloseable {
        override fun close() = own.forEach { it.close() }
    }

    companion object {
        private const val FIRST_ROWS = 256
        private const val FIRST_HEAD_ROWS = 16
        private const val MAX_BINDINGS = 64
        private const val FIRST_BIAS_BYTES = 4096L
        private const val BIAS = "the attention bias"

        /** Returns the rows of a pass without a head: before 1.31 TopK divides by zero without rows. */
        fun leastRows(version: String): Int {
            val (major, minor) = (version.split('.') + "0").map { it.toIntOrNull() ?: 0 }
            return if (major > 1 || (major == 1 && minor >= 31)) 0 else 1
        }
    }
}

/** Inputs that change with every pass, in one block. */
private class Inputs(val rows: Int, memory: Memory) : AutoCloseable {
    private val block = memory.reserve(2L * Long.SIZE_BYTES * rows + IDS_AT, "the inputs of $rows rows")
    private val positionsAt = IDS_AT + Long.SIZE_BYTES * rows
    private val ids = block.buffer.part(IDS_AT, Long.SIZE_BYTES * rows).asLongBuffer()
    private val positions = block.buffer.part(positionsAt, Long.SIZE_BYTES * rows).asLongBuffer()

    fun set(tokens: IntArray, past: Int, total: Int) {
        for (row in tokens.indices) {
            ids.put(row, tokens[row].toLong())
            positions.put(row, (past + row).toLong())
        }
        block.buffer.putInt(0, total - 1).putInt(TOTAL_AT, total)
    }

    fun tensors(count: Int): Map<String, OnnxTensor> = mapOf(
        "input_ids" to block.tensor(IDS_AT, INT64, 1, count),
        "position_ids" to block.tensor(positionsAt, INT64, 1, count),
        "seqlens_k" to block.tensor(0, INT32, 1),
        "total_sequence_length" to block.tensor(TOTAL_AT, INT32),
    )

    override fun close() = block.close()

    private companion object {
        const val TOTAL_AT = 8
        const val IDS_AT = 64
    }
}

/** Outputs of a pass with a head, in one block. */
private class Outputs(val rows: Int, private val facts: GraphFacts, memory: Memory) : AutoCloseable {
    private val topLogitsAt = Long.SIZE_BYTES * rows * facts.topK
    private val logitsAt = topLogitsAt + Float.SIZE_BYTES * rows * facts.topK
    private val logitBytes = Float.SIZE_BYTES.toLong() * rows * facts.vocabSize
    private val block = memory.reserve(logitsAt + logitBytes, "the logits of $rows rows")
    val topIds: LongBuffer = block.buffer.part(0, topLogitsAt).asLongBuffer()
    val topLogits: FloatBuffer = block.buffer.part(topLogitsAt, logitsAt - topLogitsAt).asFloatBuffer()
    val logits: FloatBuffer = block.buffer.part(logitsAt, logitBytes.toInt()).asFloatBuffer()

    fun tensors(count: Int): Map<String, OnnxTensor> = mapOf(
        "logits" to block.tensor(logitsAt, FLOAT, count, facts.vocabSize),
        "top_logits" to block.tensor(topLogitsAt, FLOAT, count, facts.topK),
        "top_ids" to block.tensor(0, INT64, count, facts.topK),
    )

    override fun close() = block.close()
}
