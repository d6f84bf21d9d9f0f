package dev.edgedec.core

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
        checkOpen()
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
        outputs.reader.position(row * columns)
        outputs.reader.get(into, 0, columns)
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

    private fun checkOpen() {
        if (!open) throw closed()
    }

    private fun checkValid(of: Long) {
        checkOpen()
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
        val shape = longArrayOf(1, 1, rows.toLong(), total.toLong())
        return OnnxTensor.createTensor(environment, bias.buffer.part(0, bytes).asFloatBuffer(), shape)
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
        val own = inputs.tensors(environment, key.count) + ("rows" to index(wanted) { it }) + attentionRows(key)
        val scored = outputs.tensors(environment, wanted)
        val binding = Binding(HashMap(own + cache.past), scored + cache.present, own.values + scored.values)
        bindings[key] = binding
        return binding
    }

    private fun attentionRows(key: Key): Map<String, OnnxTensor> = when {
        !graph.ownRows -> emptyMap()
        else -> mapOf(
            "attention_rows" to index(key.rows) { minOf(it, key.count - 1) },
            "computed_rows" to index(key.count) { it },
        )
    }

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
    private val block = memory.reserve(2L * Long.SIZE_BYTES * rows + HEADER, "the inputs of $rows rows")
    private val ids = block.buffer.part(HEADER, Long.SIZE_BYTES * rows)
    private val positions = block.buffer.part(HEADER + Long.SIZE_BYTES * rows, Long.SIZE_BYTES * rows)
    private val pastLength = block.buffer.part(0, Int.SIZE_BYTES).asIntBuffer()
    private val total = block.buffer.part(Long.SIZE_BYTES, Int.SIZE_BYTES).asIntBuffer()
    private val idsOut = ids.asLongBuffer()
    private val positionsOut = positions.asLongBuffer()

    fun set(tokens: IntArray, past: Int, total: Int) {
        for (row in tokens.indices) {
            idsOut.put(row, tokens[row].toLong())
            positionsOut.put(row, (past + row).toLong())
        }
        pastLength.put(0, total - 1)
        this.total.put(0, total)
    }

    fun tensors(environment: OrtEnvironment, count: Int): Map<String, OnnxTensor> {
        val shape = longArrayOf(1, count.toLong())
        val bytes = Long.SIZE_BYTES * count
        return mapOf(
            "input_ids" to OnnxTensor.createTensor(environment, ids.part(0, bytes).asLongBuffer(), shape),
            "position_ids" to OnnxTensor.createTensor(environment, positions.part(0, bytes).asLongBuffer(), shape),
            "seqlens_k" to OnnxTensor.createTensor(environment, pastLength, longArrayOf(1)),
            "total_sequence_length" to OnnxTensor.createTensor(environment, total, longArrayOf()),
        )
    }

    override fun close() = block.close()

    private companion object {
        const val HEADER = 64
    }
}

/** Outputs of a pass with a head, in one block. */
private class Outputs(val rows: Int, private val facts: GraphFacts, memory: Memory) : AutoCloseable {
    private val idBytes = Long.SIZE_BYTES * rows * facts.topK
    private val topBytes = Float.SIZE_BYTES * rows * facts.topK
    private val logitBytes = Float.SIZE_BYTES.toLong() * rows * facts.vocabSize
    private val block = memory.reserve(idBytes + topBytes + logitBytes, "the logits of $rows rows")
    private val logits = block.buffer.part(idBytes + topBytes, logitBytes.toInt())
    val topIds: LongBuffer = block.buffer.part(0, idBytes).asLongBuffer()
    val topLogits: FloatBuffer = block.buffer.part(idBytes, topBytes).asFloatBuffer()
    val reader: FloatBuffer = logits.asFloatBuffer()

    fun tensors(environment: OrtEnvironment, count: Int): Map<String, OnnxTensor> {
        fun floats(from: FloatBuffer, columns: Int): OnnxTensor {
            val view = from.duplicate()
            view.position(0)
            view.limit(count * columns)
            return OnnxTensor.createTensor(environment, view, longArrayOf(count.toLong(), columns.toLong()))
        }
        val ids = topIds.duplicate()
        ids.limit(count * facts.topK)
        val shape = longArrayOf(count.toLong(), facts.topK.toLong())
        return mapOf(
            "logits" to floats(reader, facts.vocabSize),
            "top_logits" to floats(topLogits, facts.topK),
            "top_ids" to OnnxTensor.createTensor(environment, ids, shape),
        )
    }

    override fun close() = block.close()
}
