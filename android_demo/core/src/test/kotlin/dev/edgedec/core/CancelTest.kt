package dev.edgedec.core

import java.util.concurrent.CountDownLatch
import kotlin.concurrent.thread
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class CancelTest {
    private val any = examples(::Example)
    private class PassFailed : Exception()

    /** Does something inside each pass of a text, one after the other; the text after that is plain decoding's. */
    private fun checkEachPass(
        target: (Example) -> FakeModel = { it.target },
        act: (Cancellation) -> Unit,
        check: (Throwable?, List<Int>, Decoded) -> Unit,
    ) = { one: Example ->
        val models = listOf(target(one), one.draft)
        val engine = Engine(models[0].open(one.capacity), one.drafter(), one.lengths())
        var at = 0
        do {
            val cancellation = Cancellation()
            val emissions = ArrayList<Emission>()
            var passes = 0
            var acted = false
            models.forEach { it.onPass = { if (passes++ == at) { acted = true; act(cancellation) } } }
            val decoded = runCatching { engine.decode(one, cancellation = cancellation, emitted = emissions) }
            models.forEach { it.onPass = {} }
            if (acted) check(decoded.exceptionOrNull(), emissions.map { it.token }, plain(one))
            val next = (one.prompt + one.more).let { it.copyOf(minOf(it.size, one.capacity)) }
            assertEquals(plain(one, next), engine.decode(one, next).first)
            at += 1 + at / 4
        } while (acted)
    }

    private val cancelled = { error: Throwable?, ids: List<Int>, plain: Decoded ->
        assertEquals(null, error)
        assertEquals(plain.ids.take(ids.size), ids)
        assertTrue(ids.size < plain.ids.size) { "went on after it was cancelled" }
    }

    @Test
    fun `a text cancelled inside any pass keeps whole tokens, and the next text is right`() =
        holds(any, 100, checkEachPass(act = Cancellation::cancel, check = cancelled))

    @Test
    fun `a session that forgets a token after that is caught`() {
        fun check(forgetful: Boolean) = checkEachPass({ it.target.twin(forgetful) }, Cancellation::cancel, cancelled)
        holds(any, 20, check(forgetful = false))
        assertTrue(isBroken(any, 100, check(forgetful = true)))
    }

    @Test
    fun `a cancellation that nobody hears is caught`() =
        assertTrue(isBroken(any, 100, checkEachPass(act = {}, check = cancelled)))

    @Test
    fun `a text whose pass fails keeps whole tokens, and the next text is right`() = holds(
        any,
        100,
        checkEachPass(act = { throw PassFailed() }) { error, ids, plain ->
            assertTrue(error is PassFailed)
            assertEquals(plain.ids.take(ids.size), ids)
        },
    )

    @Test
    fun `another thread ends a running pass`() {
        val model = FakeModel()
        val inPass = CountDownLatch(1)
        val asked = CountDownLatch(1)
        val cancellation = Cancellation()
        val prompt = intArrayOf(1, 2, 3)
        val engine = Engine(model.open(100))
        var figures: Figures? = null
        model.onPass = {
            inPass.countDown()
            asked.await()
        }
        val decoding = thread {
            figures = engine.run(prompt, 50, cancellation)
        }
        inPass.await()
        cancellation.cancel()
        asked.countDown()
        decoding.join()
        assertEquals("cancelled" to 0, figures?.let { it.reason to it.newTokens })
        assertEquals(1, model.passes)
    }

    @Test
    fun `a cancellation before the text begins or after it has ended does no harm`() {
        val model = FakeModel()
        val session = model.open(100)
        val engine = Engine(session)
        val prompt = intArrayOf(1, 2, 3)
        val early = Cancellation().apply { cancel() }
        assertEquals("cancelled" to 0, engine.run(prompt, 5, early).let { it.reason to it.newTokens })
        assertEquals(0, model.passes)
        val late = Cancellation()
        assertEquals("length" to 5, engine.run(prompt, 5, late).let { it.reason to it.newTokens })
        late.cancel()
        session.forward(intArrayOf(1)) // is not interrupted
    }

    @Test
    fun `a cancellation between passes does not end the next text`() {
        val engine = Engine(FakeModel().open(100))
        val prompt = intArrayOf(1, 2, 3)
        val cancellation = Cancellation()
        val figures = engine.run(prompt, 5, cancellation) { cancellation.cancel() }
        assertEquals("cancelled" to 1, figures.reason to figures.newTokens)
        assertEquals(5, engine.run(prompt, 5).newTokens)
    }

    @Test
    fun `a reader that throws ends its text only`() {
        val engine = Engine(FakeModel().open(100))
        val prompt = intArrayOf(1, 2, 3)
        fun run(onTokens: (List<Emission>) -> Unit) = engine.run(prompt, 5, onTokens = onTokens)
        assertThrows(PassFailed::class.java) { run { throw PassFailed() } }
        // After an error of any kind nothing that the session holds is trusted.
        assertEquals(5 to 0, run {}.let { it.newTokens to it.reusedTokens })
        assertThrows(StateException::class.java) { run { run {} } }
        assertEquals(5, run {}.newTokens)
    }
}
