package dev.edgedec.core

import kotlin.random.Random
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class MeasuredLengthsTest {
    private val shapes = listOf(
        Triple("flat", listOf(1.0, 1.03, 1.08, 1.2), 0.2),
        Triple("rising", listOf(1.0, 1.3, 1.8, 2.9), 0.2),
        Triple("step", listOf(1.0, 1.6, 1.7, 2.8), 0.1),
        Triple("linear", listOf(1.0, 2.0, 4.0, 8.0), 0.3),
        Triple("lookup", listOf(1.0, 1.3, 1.8, 2.9), 0.0),
    )
    private val seeds = 1..6
    private val never = { _: Double -> 0.0 }
    private val good = { _: Double -> 0.85 }
    private val turnsBad = { at: Double -> if (at < 0.5) 0.85 else 0.0 }
    private val turnsGood = { at: Double -> if (at < 0.5) 0.0 else 0.85 }

    private fun eachDevice(action: (name: String, noise: Device.Noises, make: (seed: Int) -> Device) -> Unit) {
        for ((name, rows, step) in shapes) {
            for (noise in Device.Noises.entries) action("$name, noise $noise", noise) { Device(rows, step, noise, it) }
        }
    }

    /** The greatest loss against plain decoding, over devices, lengths of text and seeds. */
    private fun greatestLoss(chance: (Double) -> Double, lengths: (CostModel) -> Lengths): Double {
        var greatest = -1.0
        eachDevice { _, _, device ->
            for (tokens in intArrayOf(128, 512)) {
                for (seed in seeds.take(3)) {
                    val model = CostModel(device(seed), tokens, seed, chance)
                    greatest = maxOf(greatest, model.relativeTime(lengths(model)) - 1)
                }
            }
        }
        return greatest
    }

    @Test
    fun `drafts that are never right lose at most 3 percent`() {
        val loss = greatestLoss(never, CostModel::measured)
        assertTrue(loss <= 0.03) { "lost ${100 * loss}%" }
    }

    @Test
    fun `drafts that turn bad or good in the middle lose at most 3 percent`() {
        for (chance in listOf(turnsBad, turnsGood)) {
            val loss = greatestLoss(chance, CostModel::measured)
            assertTrue(loss <= 0.03) { "lost ${100 * loss}%" }
        }
    }

    /** Any device, and drafts right with a chance that may change in the middle of a text. */
    private class Case(random: Random) {
        val noise = Device.Noises.entries.random(random)
        private val seed = random.nextInt()
        private val step = random.pick(0.0, 0.05, 0.1, 0.2, 0.3, 0.6)
        private val rows = listOf(1, 2, 4).runningFold(1.0) { time, added ->
            time + added * random.pick(0.1, 0.5, 1.0) * random.nextDouble()
        }
        private val begin = random.nextDouble()
        private val end = random.pick(begin, random.nextDouble(), 0.0, 0.85)

        fun model(tokens: Int) = CostModel(Device(rows, step, noise, seed), tokens, seed) { if (it < 0.5) begin else end }

        override fun toString() = "noise $noise, rows $rows, a drafted token $step, right $begin, then $end"
    }

    private fun losesAtMost(limit: Double, allowance: Double?) = { case: Case ->
        for (tokens in intArrayOf(128, 512)) {
            val model = case.model(tokens)
            val lengths = model.measured(allowance)
            // A text after others may spend no more than the first.
            for (texts in intArrayOf(1, 3)) {
                val loss = model.relativeTime(lengths, texts) - 1
                assertTrue(loss <= limit) { "$case: lost ${100 * loss}% of $tokens tokens" }
            }
        }
    }

    @Test
    fun `on any device, drafts of any worth lose at most 3 percent of a text of 128 or 512 tokens`() {
        val cases = examples(::Case)
        holds(cases, 200, losesAtMost(0.03, allowance = null))
        assertTrue(isBroken(cases, 200, losesAtMost(0.03, allowance = 6.0))) { "an allowance of 6 tokens is too much" }
    }

    @Test
    fun `what good drafts have gained is not lost in the next text`() {
        fun loss(first: Double?): Double {
            val device = Device(shapes[0].second, shapes[0].third)
            var chance = 0.95
            val model = CostModel(device, 128) { chance }
            val lengths = model.measured(first)
            model.relativeTime(lengths)
            chance = 0.0
            return model.relativeTime(lengths) - 1
        }
        assertTrue(loss(null) <= 0.03)
        assertTrue(loss(6.0) > 0.03)
    }

    @Test
    fun `a fixed length loses more, so the limit can fail`() {
        assertTrue(greatestLoss(never) { FixedLength(1) } > 0.03)
        assertTrue(greatestLoss(turnsBad) { FixedLength(4) } > 0.03)
    }

    @Test
    fun `good drafts gain 70 percent of what the best fixed length gains, half where nothing can be measured well`() {
        eachDevice { name, noise, device ->
            fun time(lengths: (CostModel) -> Lengths) = seeds.map { seed ->
                CostModel(device(seed), 512, seed, good).let { it.relativeTime(lengths(it)) }
            }.average()
            val best = 1 / (0..8).minOf { length -> time { FixedLength(length) } }
            val found = 1 / time(CostModel::measured)
            val share = if (noise == Device.Noises.MUCH) 0.5 else 0.7
            assertTrue(found - 1 >= share * (best - 1) - 0.02) { "$name: $found times plain, the best length $best" }
        }
    }

    @Test
    fun `what was learned serves the next text`() {
        val times = seeds.map { seed ->
            val model = CostModel(Device(shapes[1].second, 0.2), 128, seed, good)
            val lengths = model.measured()
            model.relativeTime(lengths) to model.relativeTime(lengths, texts = 5)
        }
        val (first, later) = times.unzip()
        assertTrue(later.average() < first.average()) { "$first, later $later" }
    }

    @Test
    fun `pass times are the quickest, never fall, and go on in straight lines`() {
        val device = Device(listOf(1.0, 1.5, 1.2, 3.0), 0.0, Device.Noises.SPIKES)
        val model = FakeModel()
        model.onPass = device::pass
        val session = model.open(100)
        session.prefill(intArrayOf(1, 2, 3))
        val times = PassTimes.measure(session) { device.nowNs.toLong() }
        assertEquals(3, session.length)
        assertEquals(listOf(1.0, 1.5, 1.5, 1.5, 3.0, 3.375).map { it * 1e8 }, listOf(1, 2, 3, 4, 8, 9).map { times.of(it) })
    }

    @Test
    fun `a session without room for eight rows is measured with fewer`() {
        val model = FakeModel()
        val rows = ArrayList<Int>()
        model.onPass = { rows += it }
        val session = model.open(3)
        PassTimes.measure(session)
        assertEquals(setOf(1, 2), rows.toSet())
        assertEquals(0, session.length)
    }

    @Test
    fun `a drafter of which nothing is known prefills one long prompt on trust`() {
        fun times(one: Double) = PassTimes(intArrayOf(1, 8), doubleArrayOf(one, 2 * one))
        val lengths = MeasuredLengths(Costs(times(10.0), times(1.0)))
        val source = ScriptedDrafter(IntArray(0), usesModel = true) { false }
        fun draftedAndWrong() {
            check(lengths.goOn(source, 0))
            lengths.observe(Round(1, 0, 1, 1, 12))
        }
        repeat(3) { lengths.observe(Round(0, 0, 1, 0, 10)) }
        lengths.begin(128)
        assertTrue(lengths.catchUp(source, 400))
        assertTrue(lengths.catchUp(source, 200)) { "the rest of it" }
        draftedAndWrong()
        lengths.begin(128)
        assertTrue(!lengths.catchUp(source, 400))
        assertTrue(lengths.catchUp(source, 10)) { "the allowance pays for a short one" }
    }

    @Test
    fun `a prefill in a round does not make drafting look slower`() {
        fun afterwards(caughtUp: Boolean): Double {
            fun times(one: Double) = PassTimes(intArrayOf(1, 8), doubleArrayOf(one, 2 * one))
            val costs = Costs(times(10.0), times(2.0))
            repeat(5) { costs.observe(Round(1, 1, 2, draftNs = 500, targetNs = 11), usesModel = true, caughtUp) }
            return costs.round(1, usesModel = true)
        }
        assertTrue(afterwards(caughtUp = true) < 1.4)
        assertTrue(afterwards(caughtUp = false) > 1.4)
    }

    @Test
    fun `of two drafters the better one is asked first`() {
        val costs = Costs(PassTimes(intArrayOf(1, 8), doubleArrayOf(10.0, 12.0)))
        val lengths = MeasuredLengths(costs)
        fun source(name: String) = ScriptedDrafter(IntArray(0), name = name) { false }
        fun round(name: String, accepted: Int) {
            val drafts = lengths.goOn(source(name), 0)
            lengths.observe(if (drafts) Round(2, accepted, accepted + 1, 0, 10) else Round(0, 0, 1, 0, 10))
        }
        assertTrue(!lengths.prefers(source("model"), source("lookup")))
        repeat(20) {
            round("lookup", 0)
            round("model", 2)
        }
        assertTrue(lengths.prefers(source("model"), source("lookup")))
        assertTrue(!lengths.prefers(source("lookup"), source("model")))
        repeat(100) { round("model", 2) }
        assertTrue(!lengths.prefers(source("model"), source("lookup"))) { "lookup is tried again after a while" }
    }
}
