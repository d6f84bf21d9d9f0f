package dev.edgedec.core

import kotlin.math.exp
import kotlin.random.Random

/** Nanoseconds of a plain round: slow enough for few samples at load. */
private const val PLAIN_NS = 100_000_000.0

/**
 * A device on which passes take what is said here, by a clock of its own.
 *
 * @param rows time of passes of 1, 2, 4 and 8 rows, in passes of one row
 * @param step time of a drafted token, likewise
 * @param noise of the times that the policy sees
 */
class Device(private val rows: List<Double>, val step: Double, private val noise: Noises = Noises.NONE, seed: Int = 7) {
    enum class Noises { NONE, MUCH, SPIKES, HEAT, LOAD }

    private val random = Random(seed)
    private var passes = 0
    private var narrow = false

    /** Whether a bundle is being opened; with [Noises.LOAD] passes of one row seem slower then. */
    var loading = false

    /** What the policy sees, and the time without noise that losses are counted in. */
    var nowNs = 0.0
    var spentNs = 0.0

    fun pass(count: Int) {
        passes++
        narrow = count == 1
        take(PLAIN_NS * exactly(count))
    }

    fun draft() = take(PLAIN_NS * step)

    fun exactly(count: Int): Double {
        val upper = (1 until ROWS.size - 1).firstOrNull { ROWS[it] >= count } ?: (ROWS.size - 1)
        val share = (count - ROWS[upper - 1]).toDouble() / (ROWS[upper] - ROWS[upper - 1])
        return rows[upper - 1] + share * (rows[upper] - rows[upper - 1])
    }

    private fun take(ns: Double) {
        spentNs += ns
        nowNs += ns * when (noise) {
            Noises.NONE -> 1.0
            Noises.MUCH -> exp(0.2 * 2 * (random.nextDouble() + random.nextDouble() + random.nextDouble() - 1.5))
            Noises.SPIKES -> if (random.nextInt(20) == 0) 6.0 else 1.0
            Noises.LOAD -> if (loading && narrow) 1.4 else 1.0
            Noises.HEAT -> if (passes > 200) 2.5 else 1.0
        }
    }

    companion object {
        private val ROWS = intArrayOf(1, 2, 4, 8)
    }
}

/** Decodes texts on a device with drafts that are right as often as [chance] says, by position in the text. */
class CostModel(
    private val device: Device,
    private val tokens: Int,
    seed: Int = 11,
    private val chance: (Double) -> Double,
) {
    private val target = FakeModel(seed = 1)
    private val prompt = IntArray(8) { it }
    private val random = Random(seed)

    /** Returns the policy after what it measures at load, the broken twin by a larger [allowance]. */
    fun measured(allowance: Double? = null): Lengths {
        val session = target.open(64)
        target.onPass = device::pass
        device.loading = true
        val times = PassTimes.measure(session) { device.nowNs.toLong() }
        device.loading = false
        val draft = PassTimes(intArrayOf(1, 8), doubleArrayOf(PLAIN_NS * device.step, PLAIN_NS * device.step * 1.5))
        val costs = Costs(times, draft.takeIf { device.step > 0 })
        return allowance?.let { MeasuredLengths(costs, it) } ?: MeasuredLengths(costs)
    }

    /** Returns the time of [texts] texts relative to plain decoding of them. */
    fun relativeTime(lengths: Lengths, texts: Int = 1): Double {
        target.onPass = {}
        val text = prompt + decode(null, FixedLength(0))
        target.onPass = device::pass
        device.spentNs = 0.0
        val drafter = ScriptedDrafter(text, device.step > 0, onDraft = device::draft) { position ->
            random.nextDouble() < chance((position - prompt.size).toDouble() / tokens)
        }
        repeat(texts) { decode(drafter, lengths) }
        // Two passes prefill the prompt.
        return device.spentNs / texts / (PLAIN_NS * (tokens + 2 * device.exactly(4)))
    }

    private fun decode(drafter: DraftSource?, lengths: Lengths): IntArray {
        val ids = ArrayList<Int>()
        val engine = Engine(target.open(prompt.size + tokens), drafter, lengths, { device.nowNs.toLong() })
        engine.run(prompt, tokens) { round -> ids += round.map { it.token } }
        return ids.toIntArray()
    }
}
