package dev.edgedec.core

import kotlin.random.Random
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class EngineTest {
    private val any = examples(::Example)

    /** Two texts on one engine, the second one beginning like the first: each is plain decoding's. */
    private fun checkTexts(
        target: (Example) -> FakeModel = { it.target },
        rule: AcceptanceRule = GumbelCoupling,
        streams: (Long) -> Streams = { Streams(it) },
    ) = { one: Example ->
        val session = target(one).open(one.capacity)
        val engine = Engine(session, one.drafter(), one.lengths(), System::nanoTime, rule)
        val first = plain(one)
        val common = (one.prompt + first.ids).let { it.copyOf(minOf(it.size, maxOf(1, it.size / 2))) }
        for (prompt in listOf(one.prompt, (common + one.more).let { it.copyOf(minOf(it.size, one.capacity)) })) {
            val expected = plain(one, prompt)
            val sampler = Sampler(one.sampling, one.target.vocabSize, prompt, streams(one.sampling.seed ?: 0))
            val emissions = ArrayList<Emission>()
            val (decoded, figures) = engine.decode(one, prompt, sampler, emitted = emissions)
            assertEquals(expected, decoded)
            assertTrue(expected.text.startsWith(emissions.joinToString("") { it.text }))
            checkFigures(figures, emissions, prompt)
        }
    }

    private fun checkFigures(figures: Figures, emissions: List<Emission>, prompt: IntArray) {
        assertEquals(emissions.size, figures.newTokens)
        assertEquals(emissions.count { it.drafted }, figures.accepted)
        assertEquals(prompt.size, figures.promptTokens)
        assertTrue(figures.reusedTokens < prompt.size && figures.accepted <= figures.drafted)
        assertTrue(figures.newTokens <= figures.rounds + figures.accepted)
    }

    @Test
    fun `any drafter and any lengths give plain decoding's text`() = holds(any, 600, checkTexts())

    @Test
    fun `noise by the order of calls is caught`() =
        assertTrue(isBroken(any, 600, checkTexts(streams = ::StreamsByCall)))

    @Test
    fun `a rule that keeps a wrong token is caught`() = assertTrue(isBroken(any, 600, checkTexts(rule = KeepsFirst)))

    @Test
    fun `a rollback that forgets a token is caught`() {
        holds(any, 100, checkTexts(target = { it.target.twin(forgetful = false) }))
        assertTrue(isBroken(any, 600, checkTexts(target = { it.target.twin(forgetful = true) })))
    }

    /** A draft model equal to the target drafts what the target draws: with any mistake in its session it would not. */
    private fun checkAllAccepted(draft: (Example) -> FakeModel) = { one: Example ->
        val drafter = ModelDrafter(draft(one).open(4096))
        val engine = Engine(one.target.open(4096), drafter, one.lengths())
        for (prompt in listOf(one.prompt, one.prompt + one.more, one.more)) {
            // Lookup alone leaves the model behind.
            val stop = one.stop()
            engine.run(prompt, one.sampler(prompt), stop, LookupDrafter()) {}
            val figures = engine.run(prompt + one.more, one.sampler(prompt + one.more), StopRule(maxNewTokens = 30)) {}
            assertEquals(figures.drafted, figures.accepted)
        }
    }

    @Test
    fun `a draft model that is the target is always right`() = holds(any, 200, checkAllAccepted { it.target })

    @Test
    fun `a draft session that forgets a token is caught`() {
        holds(any, 50, checkAllAccepted { it.target.twin(forgetful = false) })
        assertTrue(isBroken(any, 200, checkAllAccepted { it.target.twin(forgetful = true) }))
    }

    @Test
    fun `a prefix that the session holds is not computed again`() {
        val model = FakeModel()
        val engine = Engine(model.open(100))
        val prompt = intArrayOf(1, 2, 3, 4, 5, 6, 7, 8, 9)
        val rows = ArrayList<Int>()
        model.onPass = { rows += it }
        val ids = ArrayList<Int>()
        engine.run(prompt, 4) { ids += it.map(Emission::token) }
        rows.clear()
        val longer = prompt + ids + intArrayOf(1, 1)
        val figures = engine.run(longer, 1)
        // The last token of the first text was not computed.
        assertEquals(12 to listOf(2, 1), figures.reusedTokens to rows)
    }

    @Test
    fun `a drafter may be chosen for each text, and is begun when it is`() {
        val model = FakeModel(sharpness = 6.0)
        val drafter = ModelDrafter(FakeModel(like = model to 0.9).open(200))
        val engine = Engine(model.open(200))
        val prompt = intArrayOf(1, 2, 3)
        fun run(drafter: DraftSource?): Pair<Int, List<Int>> {
            val ids = ArrayList<Int>()
            val stop = StopRule(maxNewTokens = 50)
            val figures = engine.run(prompt, Sampler(Sampling(), 16, prompt), stop, drafter, FixedLength(4)) {
                ids += it.map(Emission::token)
            }
            return figures.rounds to ids
        }
        val (plainRounds, plain) = run(null)
        val (rounds, drafted) = run(drafter)
        assertEquals(plain, drafted)
        assertTrue(plainRounds == 50 && rounds < 35) { "$rounds rounds" }
    }

    @Test
    fun `a draft leaves room for the target's own token, in the text and in the session`() {
        val prompt = intArrayOf(1)
        val drafter = ScriptedDrafter(prompt + IntArray(60)) { true }
        for ((limit, capacity) in listOf(20 to 100, 100 to 20)) {
            var left = 20
            val lengths = object : Lengths by FixedLength(8) {
                override fun observe(round: Round) {
                    assertTrue(round.drafted < left) { "drafted ${round.drafted} of $left tokens" }
                    left -= round.emitted
                }
            }
            Engine(FakeModel().open(capacity), drafter, lengths).run(prompt, limit)
            assertEquals(0, left)
        }
    }

    @Test
    fun `TPOT leaves out the first round, whose tokens come with the prompt`() {
        val model = FakeModel()
        var now = 0L
        model.onPass = { now += 1_000_000_000L * it }
        val prompt = intArrayOf(1, 2, 3, 4, 5)
        val figures = Engine(model.open(100), clock = { now }).run(prompt, 3) {
            now += 50_000_000_000L // the reader's time is not the engine's
        }
        assertEquals(5.0 to 1.0, figures.ttftS to figures.tpotS)
        val one = Engine(model.open(100), clock = { now }).run(prompt, 1)
        assertNull(one.tpotS)
    }

    @Test
    fun `prompts that do not fit are refused, and only those`() {
        val engine = Engine(FakeModel().open(4))
        fun run(prompt: IntArray) = engine.run(prompt, 9)
        assertEquals("length" to 1, run(IntArray(4)).let { it.reason to it.newTokens })
        val error = assertThrows(InputException::class.java) { run(IntArray(5)) }
        assertEquals("the prompt has 5 tokens and the context holds 4: shorten it", error.message)
        assertThrows(InputException::class.java) { engine.room(IntArray(0)) }
        assertEquals("length" to 3, run(IntArray(2)).let { it.reason to it.newTokens })
    }

    @Test
    fun `a draft model rests while the text is longer than its session`() {
        val target = FakeModel()
        val engine = Engine(target.open(200), ModelDrafter(target.open(20)), FixedLength(4))
        val prompt = IntArray(5) { it }
        val figures = engine.run(prompt, 40)
        assertTrue(figures.drafted in 10..16 && figures.newTokens == 40) { "$figures" }
        assertEquals(figures.drafted, figures.accepted)
    }

    @Test
    fun `a long prompt is prefilled into the draft in parts, while the text goes on`() {
        val target = FakeModel()
        val draft = FakeModel(like = target to 1.0)
        val rows = ArrayList<Int>()
        draft.onPass = { rows += it }
        val engine = Engine(target.open(2000), ModelDrafter(draft.open(2000)), FixedLength(2))
        val prompt = Random(1).tokens(1300, 16)
        val seen = ArrayList<Int>()
        engine.run(prompt, 12) {
            seen += rows.sum()
            rows.clear()
        }
        // Two rounds without a draft; the tokens of these are prefilled as well.
        assertEquals(listOf(512, 512, 277 + 2), seen.take(3))
    }
}
