package dev.edgedec.core

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
    private val never = { _: Double -> 0.0 }
    private val good = { _: Double -> 0.85 }
    private val turnsBad = { at: Double -> if (at < 0.5) 0.85 else 0.0 }
    private val turnsGood = { at: Double -> if (at < 0.5) 0.0 else 0.85 }

    private fun eachDevice(action: (String, () -> Device) -> Unit) {
        for ((name, rows, step) in shapes) {
            for (noise in Device.Noises.entries) action("$name, noise $noise") { Device(name, rows, step, noise) }
        }
    }

    /** The greatest loss against plain decoding, over devices and lengths of text. */
    private fun greatestLoss(chance: (Double) -> Double, lengths: (CostModel) -> Lengths): Double {
        var greatest = -1.0
        eachDevice { name, device ->
            for (tokens in intArrayOf(128, 512)) {
                val model = CostModel(device(), tokens, chance)
                val loss = model.relativeTime(lengths(model)) - 1
                report("loss", name, tokens, loss)
                greatest = maxOf(greatest, loss)
            }
        }
        return greatest
    }

    private fun report(what: String, name: String, tokens: Int, value: Double) {
        if (System.getProperty("report") != null) println("%s %s, %d tokens: %.2f%%".format(what, name, tokens, 100 * value))
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

    @Test
    fun `a fixed length loses more, so the limit can fail`() {
        assertTrue(greatestLoss(never) { FixedLength(1) } > 0.1)
        assertTrue(greatestLoss(turnsBad) { FixedLength(4) } > 0.1)
    }

    @Test
    fun `good drafts gain most of what the best fixed length gains`() {
        eachDevice { name, device ->
            val best = (0..8).minOf { CostModel(device(), 512, good).relativeTime(FixedLength(it)) }
            val model = CostModel(device(), 512, good)
            val found = model.relativeTime(model.measured())
            report("gain of the best ${1 / best}", name, 512, 1 / found - 1)
            assertTrue(1 / found - 1 >= 0.8 * (1 / best - 1)) { "$name: ${1 / found} times plain, the best length ${1 / best}" }
        }
    }

    @Test
    fun `what was learned serves the next text`() {
        val model = CostModel(Device("rising", shapes[1].second, 0.2), 128, good)
        val lengths = model.measured()
        val first = model.relativeTime(lengths)
        assertTrue(model.relativeTime(lengths, texts = 5) < first)
    }

    @Test
    fun `a text is never longer than its limit, whatever is drafted`() {
        val rounds = ArrayList<Int>()
        val lengths = object : Lengths by FixedLength(8) {
            override fun observe(round: Round) {
                rounds += round.drafted
            }
        }
        CostModel(Device("flat", shapes[0].second, 0.0), 20, good).relativeTime(lengths)
        assertTrue(rounds.all { it <= 8 } && rounds.last() < 8)
    }

    @Test
    fun `pass times are medians, never fall, and go on in straight lines`() {
        val device = Device("spikes", listOf(1.0, 1.5, 1.2, 3.0), 0.0, Device.Noises.SPIKES)
        val model = FakeModel()
        model.onPass = device::pass
        val session = model.open(100)
        session.prefill(intArrayOf(1, 2, 3))
        val times = PassTimes.measure(session) { device.nowNs.toLong() }
        assertEquals(3, session.length)
        assertEquals(listOf(1e6, 1.5e6, 1.5e6, 1.5e6, 3e6, 3.375e6), listOf(1, 2, 3, 4, 8, 9).map { times.of(it) })
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
        val costs = Costs(PassTimes(intArrayOf(1, 8), doubleArrayOf(10.0, 20.0)), PassTimes(intArrayOf(1, 8), doubleArrayOf(1.0, 2.0)))
        val lengths = MeasuredLengths(costs)
        val source = ScriptedDrafter(IntArray(0), usesModel = true) { false }
        fun draftedAndWrong() {
            check(lengths.goOn(source, 0))
            lengths.observe(Round(1, 0, 1, 1, 12))
        }
        lengths.begin(128)
        assertTrue(lengths.catchUp(source, 400))
        assertTrue(lengths.catchUp(source, 200)) { "the rest of it" }
        draftedAndWrong()
        lengths.begin(128)
        assertTrue(!lengths.catchUp(source, 400))
        assertTrue(lengths.catchUp(source, 10)) { "the allowance pays for a short one" }
    }

    @Test
    fun `of two drafters the better one is asked first`() {
        val costs = Costs(PassTimes(intArrayOf(1, 8), doubleArrayOf(10.0, 12.0)))
        val lengths = MeasuredLengths(costs)
        fun source(name: String) = ScriptedDrafter(IntArray(0), name = name) { false }
        fun round(name: String, accepted: Int) {
            if (lengths.goOn(source(name), 0)) lengths.observe(Round(2, accepted, accepted + 1, 0, 10))
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
