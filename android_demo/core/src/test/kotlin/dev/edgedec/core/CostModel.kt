package dev.edgedec.core

import kotlin.math.exp
import kotlin.random.Random

/** Nanoseconds of a plain round. */
private const val PLAIN_NS = 1_000_000.0

/**
 * A device on which passes take what is said here, by a clock of its own.
 *
 * @param rows time of passes of 1, 2, 4 and 8 rows, in passes of one row
 * @param step time of a drafted token, likewise
 * @param noise of the times that the policy sees
 */
class Device(val name: String, private val rows: List<Double>, val step: Double, private val noise: Noises = Noises.NONE) {
    enum class Noises { NONE, MUCH, SPIKES, HEAT }

    private val random = Random(7)
    private var passes = 0

    /** What the policy sees, and the time without noise that losses are counted in. */
    var nowNs = 0.0
    var spentNs = 0.0

    fun pass(count: Int) {
        passes++
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
            Noises.MUCH -> exp(0.3 * (random.nextDouble() + random.nextDouble() + random.nextDouble() - 1.5) * 2)
            Noises.SPIKES -> if (random.nextInt(20) == 0) 6.0 else 1.0
            Noises.HEAT -> if (passes > 200) 2.5 else 1.0
        }
    }

    companion object {
        private val ROWS = intArrayOf(1, 2, 4, 8)
    }
}

/** Decodes texts on a device with drafts that are right as often as [chance] says, by position in the text. */
class CostModel(private val device: Device, private val tokens: Int, private val chance: (Double) -> Double) {
    private val target = FakeModel(seed = 1)
    private val prompt = IntArray(8) { it }
    private val random = Random(11)

    /** Returns the policy after what it measures at load. */
    fun measured(): Lengths {
        val session = target.open(64)
        target.onPass = device::pass
        val times = PassTimes.measure(session) { device.nowNs.toLong() }
        val draft = PassTimes(intArrayOf(1, 8), doubleArrayOf(PLAIN_NS * device.step, PLAIN_NS * device.step * 1.5))
        return MeasuredLengths(Costs(times, draft.takeIf { device.step > 0 }))
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
        engine.run(prompt, Sampler(Sampling(), 16, prompt), StopRule(maxNewTokens = tokens)) { round -> ids += round.map { it.token } }
        return ids.toIntArray()
    }
}
