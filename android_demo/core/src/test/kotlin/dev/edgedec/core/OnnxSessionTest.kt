package dev.edgedec.core

import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Assumptions.assumeFalse
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.TestInstance

@TestInstance(TestInstance.Lifecycle.PER_CLASS)
class OnnxSessionTest {
    private val model = Demo.target()
    private val contract = SessionContract(model.vocabSize, model::open)

    @AfterAll
    fun close() = model.close()

    @Test
    fun `chains give the rows of tokens computed one by one`() {
        contract.chainsEqualSingleTokens()
        flagged { SessionContract(model.vocabSize) { CommitsTooFew(model.open(it)) }.chainsEqualSingleTokens() }
    }

    @Test
    fun `what was rolled back leaves no trace`() {
        contract.rollbackLeavesNoTrace()
        flagged { SessionContract(model.vocabSize) { KeepsAToken(model.open(it)) }.rollbackLeavesNoTrace() }
    }

    @Test
    fun `a pass that another thread ended can be computed again`() {
        contract.interruptedPassesCanBeRepeated()
        flagged { SessionContract(model.vocabSize) { Deaf(model.open(it)) }.interruptedPassesCanBeRepeated() }
    }

    @Test
    fun `an interrupt between two passes ends the next one`() {
        contract.interruptsAreKept()
        flagged { SessionContract(model.vocabSize) { Deaf(model.open(it)) }.interruptsAreKept() }
        flagged { SessionContract(model.vocabSize) { NeverResumes(model.open(it)) }.interruptsAreKept() }
    }

    @Test
    fun `all of the capacity can be used and nothing more`() = contract.capacityIsExact()

    @Test
    fun `calls out of order are refused`() = contract.callsOutOfOrderAreRefused()

    @Test
    fun `a closed session refuses everything`() = contract.closedSessionsRefuse()

    @Test
    fun `the contract notices rows that depend on each other`() {
        OnnxModel.load(Demo.bundle.target, threads = 1, batchInvariant = false).use { plain ->
            val alone = rows(plain, intArrayOf(50))
            val paired = rows(plain, intArrayOf(50, 51)).take(1)
            assumeFalse(sameBits(alone, paired), "rows are independent of each other here without padding")
            flagged { SessionContract(plain.vocabSize, plain::open).chainsEqualSingleTokens() }
        }
    }

    @Test
    fun `closing while another thread computes ends that thread in words`() {
        repeat(50) { turn ->
            val session = model.open(256)
            val found = arrayOfNulls<Throwable>(1)
            val other = Thread {
                found[0] = runCatching { while (true) { session.prefill(Demo.tokens(200)); session.rollback(0) } }
                    .exceptionOrNull()
            }
            other.start()
            val until = System.nanoTime() + turn * 100_000L
            while (System.nanoTime() < until) Unit
            session.close()
            other.join()
            val error = found[0]
            assertTrue(error is InterruptedPass || error is StateException, "$error")
        }
    }

    @Test
    fun `the weights outlive the model until its sessions are closed`() {
        val own = Demo.target()
        val session = own.open(16)
        val before = session.forward(intArrayOf(9)).best(0)
        own.close()
        own.close()
        session.rollback(0)
        assertEquals(before, session.forward(intArrayOf(9)).best(0))
        assertThrows(StateException::class.java) { own.open(16) }
        session.close()
    }

    @Test
    fun `all memory is freed with the session`() {
        val memory = CountingMemory()
        Demo.target(memory).use { own ->
            val session = own.open(600)
            session.prefill(Demo.tokens(300))
            (1..40).forEach { width ->
                session.forward(Demo.tokens(width))
                session.rollback(300)
            }
            assertTrue(memory.open > 0)
            session.close()
            assertEquals(0, memory.open)
        }
    }

    @Test
    fun `memory that cannot be had is one sentence`() {
        var left = Int.MAX_VALUE
        val memory = Memory { bytes -> if (bytes > left) throw OutOfMemoryError() else Memory.direct.allocate(bytes) }
        Demo.target(memory).use { own ->
            left = 1_000_000
            val error = assertThrows(EdgedecException::class.java) { own.open(600) }
            assertEquals("the cache of 600 tokens would take 4 MB, which cannot be allocated: use a shorter context", error.message)
            left = Int.MAX_VALUE
            own.open(600).close()
        }
    }

    @Test
    fun `the draft computes as well`() = OnnxModel.load(Demo.bundle.requireDraft(), batchInvariant = false).use { draft ->
        draft.open(64).use { session ->
            session.prefill(Demo.tokens(20))
            val pass = session.forward(intArrayOf(11, 12))
            val row = FloatArray(draft.vocabSize).also { pass.logits(1, it) }
            assertEquals(row.indices.maxByOrNull { row[it] }, pass.best(1))
        }
    }

    @Test
    fun `the first pass may be a chain`() {
        val chain = Demo.tokens(5)
        val (all, first) = model.open(16).use { session ->
            val pass = session.forward(chain)
            (0 until 5).map(pass::best) to FloatArray(model.vocabSize).also { pass.logits(0, it) }
        }
        model.open(16).use { session ->
            val pass = session.forward(chain.copyOf(1))
            assertArrayEquals(FloatArray(model.vocabSize).also { pass.logits(0, it) }, first)
            assertEquals(all[0], pass.best(0))
        }
    }

    private fun rows(of: OnnxModel, chain: IntArray): List<FloatArray> = of.open(64).use { session ->
        session.prefill(Demo.tokens(11))
        session.forward(chain).allLogits(of.vocabSize)
    }

    private fun flagged(check: () -> Unit) {
        assertThrows(AssertionError::class.java, check)
    }
}

private fun Bundle.requireDraft() = checkNotNull(draft) { "the demo bundle has a draft" }

private class CountingMemory : Memory {
    var open = 0
        private set

    override fun allocate(bytes: Int): Block {
        open++
        val block = Memory.direct.allocate(bytes)
        return object : Block by block {
            override fun close() {
                open--
                block.close()
            }
        }
    }
}

/** Commits one token fewer than it says it does, by going back. */
private class CommitsTooFew(private val session: Session) : Session by session {
    private var missing = 0
    override val length get() = session.length + missing

    override fun commit(count: Int) {
        session.commit(count - 1)
        missing++
    }

    override fun rollback(length: Int) {
        session.rollback(minOf(length, session.length))
        missing = length - session.length
    }
}

/** Keeps the first token that it should forget, and hides it. */
private class KeepsAToken(private val session: Session) : Session by session {
    private var kept = 0
    override val length get() = session.length - kept

    override fun commit(count: Int) = session.commit(count)

    override fun rollback(length: Int) {
        val more = if (length + kept < session.length) 1 else 0
        session.rollback(length + kept + more)
        kept += more
    }
}

private class Deaf(private val session: Session) : Session by session {
    override fun interrupt() = Unit
}

private class NeverResumes(private val session: Session) : Session by session {
    override fun resume() = Unit
}
