package dev.edgedec.core

import java.util.Random
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue

/** What every session must do, as functions, so that broken sessions can be shown to fail them. */
class SessionContract(private val vocabSize: Int, private val open: (capacity: Int) -> Session) {
    private val tokens = Demo.tokens(40)

    /** Rows of tokens computed one by one. */
    private val expected: List<FloatArray> by lazy {
        open(CAPACITY).use { session ->
            tokens.map { token ->
                session.forward(intArrayOf(token)).allLogits(vocabSize).single().also { session.commit(1) }
            }
        }
    }

    /** Chains of any width, from any length, give the rows of tokens computed one by one. */
    fun chainsEqualSingleTokens() = open(CAPACITY).use { session ->
        val random = Random(7)
        repeat(40) {
            session.rollback(0)
            while (session.length < tokens.size) {
                val width = minOf(1 + random.nextInt(9), tokens.size - session.length)
                checkChain(session, width)
                session.commit(1 + random.nextInt(width))
            }
        }
    }

    /** Tokens that were drafted and not committed leave no trace, nor do those rolled back. */
    fun rollbackLeavesNoTrace() = open(CAPACITY).use { session ->
        val random = Random(8)
        repeat(40) { turn ->
            session.rollback(random.nextInt(session.length + 1))
            val root = session.length
            session.forward(intArrayOf(tokens[root]) + Demo.tokens(random.nextInt(6), turn.toLong()))
            if (random.nextBoolean()) session.commit(1) else session.rollback(root)
            checkChain(session, 3)
            session.commit(2)
            if (session.length > 30) session.rollback(random.nextInt(30))
        }
    }

    /** A pass that another thread ends at any time can be computed again, with the same rows. */
    fun interruptedPassesCanBeRepeated() = open(CAPACITY).use { session ->
        val random = Random(9)
        val prompt = Demo.tokens(200)
        session.prefill(prompt)
        val root = intArrayOf(3)
        val want = session.forward(root).allLogits(vocabSize)
        var ended = 0
        repeat(INTERRUPTS) {
            session.rollback(0)
            val wait = random.nextInt(3_000_000)
            val other = Thread {
                val until = System.nanoTime() + wait
                while (System.nanoTime() < until) Unit
                session.interrupt()
            }
            other.start()
            try {
                session.prefill(prompt)
            } catch (_: InterruptedPass) {
                ended++
            }
            other.join()
            session.resume()
            session.prefill(prompt.copyOfRange(session.length, prompt.size))
            assertTrue(sameBits(want, session.forward(root).allLogits(vocabSize)), "other rows after an interrupt")
        }
        assertTrue(ended > 0, "no pass was ended")
    }

    /** A request between two passes ends the next one, once. */
    fun interruptsAreKept() = open(CAPACITY).use { session ->
        session.prefill(tokens.copyOf(10))
        session.interrupt()
        assertThrows(InterruptedPass::class.java) { session.forward(intArrayOf(tokens[10])) }
        checkChain(session, 2)
        session.rollback(10)
        session.interrupt()
        assertThrows(InterruptedPass::class.java) { session.prefill(tokens.copyOfRange(10, 12)) }
        assertEquals(10, session.length)
        session.interrupt()
        session.resume()
        checkChain(session, 2)
    }

    /** All of the capacity can be used, and nothing more. */
    fun capacityIsExact() = open(12).use { session ->
        session.prefill(tokens.copyOf(8))
        assertThrows(InputException::class.java) { session.forward(tokens.copyOf(5)) }
        assertThrows(InputException::class.java) { session.prefill(tokens.copyOf(5)) }
        checkChain(session, 4)
        session.commit(4)
        assertEquals(12, session.length)
        assertThrows(InputException::class.java) { session.forward(intArrayOf(7)) }
        assertThrows(InputException::class.java) { open(0) }
    }

    /** Calls out of order are refused in words, and change nothing. */
    fun callsOutOfOrderAreRefused() = open(CAPACITY).use { session ->
        session.prefill(tokens.copyOf(5))
        assertThrows(StateException::class.java) { session.commit(1) }
        assertThrows(StateException::class.java) { session.rollback(6) }
        assertThrows(StateException::class.java) { session.rollback(-1) }
        assertThrows(StateException::class.java) { session.forward(intArrayOf()) }
        assertThrows(InputException::class.java) { session.forward(intArrayOf(vocabSize)) }
        assertThrows(InputException::class.java) { session.prefill(intArrayOf(-1)) }
        val pass = session.forward(intArrayOf(tokens[5]))
        assertThrows(StateException::class.java) { session.forward(intArrayOf(tokens[6])) }
        assertThrows(StateException::class.java) { session.prefill(intArrayOf(tokens[6])) }
        assertThrows(StateException::class.java) { session.commit(2) }
        assertThrows(StateException::class.java) { pass.best(1) }
        session.commit(1)
        checkChain(session, 1)
        assertThrows(StateException::class.java) { pass.best(0) }
    }

    /** A closed session refuses everything but closing, also what it returned before. */
    fun closedSessionsRefuse() {
        val session = open(CAPACITY)
        val pass = session.forward(intArrayOf(5))
        session.close()
        session.close()
        session.interrupt()
        session.resume()
        val calls = listOf<() -> Unit>(
            { session.forward(intArrayOf(5)) },
            { session.prefill(intArrayOf(5)) },
            { session.commit(0) },
            { session.rollback(0) },
            { pass.best(0) },
            { pass.logits(0, FloatArray(vocabSize)) },
        )
        calls.forEach { call -> assertThrows(StateException::class.java) { call() } }
    }

    private fun checkChain(session: Session, width: Int) {
        val from = session.length
        val rows = session.forward(tokens.copyOfRange(from, from + width)).allLogits(vocabSize)
        assertTrue(sameBits(expected.subList(from, from + width), rows), "$width tokens after $from: other rows")
    }

    private companion object {
        const val CAPACITY = 256
        const val INTERRUPTS = 200
    }
}
