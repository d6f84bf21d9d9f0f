package dev.edgedec.core

import java.io.File
import java.util.Random

/** The repository's demo bundle, which tests of the real runtime decode with. */
object Demo {
    val folder = File("../../models/demo/bundle").canonicalFile
    val bundle: Bundle by lazy { Bundle.open(folder) }

    /** Padded where that is needed here, so that drafts cannot change a text. */
    fun target(memory: Memory = Memory.direct): OnnxModel =
        OnnxModel.load(bundle.target, threads = 1, memory = memory, batchInvariant = true)

    /** Returns the same tokens for the same seed; ids below 5 are special. */
    fun tokens(count: Int, seed: Long = 1): IntArray {
        val random = Random(seed)
        return IntArray(count) { 5 + random.nextInt(4091) }
    }
}

/** Returns a copy of all rows of a pass. */
fun Pass.allLogits(vocabSize: Int): List<FloatArray> = List(rows) { row ->
    FloatArray(vocabSize).also { logits(row, it) }
}

fun sameBits(one: List<FloatArray>, other: List<FloatArray>): Boolean =
    one.size == other.size && one.indices.all { one[it].contentEquals(other[it]) }
