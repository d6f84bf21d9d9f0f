package dev.edgedec.core

import ai.onnxruntime.OnnxTensor

/**
 * The keys and values of one sequence, `[2 * layers, kv_heads, slots, width]` in one block.
 *
 * The graph writes `present_*` where it reads `past_*`: both are tensors over the same memory, so
 * nothing is copied, and committing or rolling back is a change of a length.
 */
internal class KvCache(graph: Graph, val slots: Int, memory: Memory) : AutoCloseable {
    private val heads = graph.facts.kvHeads
    private val slotBytes = graph.kvWidth * graph.kvType.size
    private val parts = 2 * graph.facts.layers
    private val block = memory.reserve(parts.toLong() * heads * slots * slotBytes, "the cache of $slots tokens")

    /** Tensors by the name of an input. */
    val past = tensors("past", graph)

    /** Tensors by the name of an output. */
    val present = tensors("present", graph)

    private fun tensors(time: String, graph: Graph): Map<String, OnnxTensor> = (0 until parts).associate { part ->
        val name = "${time}_${if (part % 2 == 0) "key" else "value"}_${part / 2}"
        name to block.tensor(part * heads * slots * slotBytes, graph.kvType, 1, heads, slots, graph.kvWidth)
    }

    /** Returns the bytes of one slot: all layers and heads. */
    fun slot(at: Int): ByteArray {
        val found = ByteArray(parts * heads * slotBytes)
        val view = block.buffer.duplicate()
        for (row in 0 until parts * heads) {
            view.position((row * slots + at) * slotBytes)
            view.get(found, row * slotBytes, slotBytes)
        }
        return found
    }

    override fun close() {
        past.values.forEach { it.close() }
        present.values.forEach { it.close() }
        block.close()
    }
}
