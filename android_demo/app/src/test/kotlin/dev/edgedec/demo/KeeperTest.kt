package dev.edgedec.demo

import dev.edgedec.core.State
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.io.File
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit

class KeeperTest {
    private val engines = CopyOnWriteArrayList<ScriptedEngine>()
    private val gate = CountDownLatch(1)
    private val keeper = Keeper { threads ->
        gate.await()
        assertTrue(engines.all { it.closed }, "two decoders are open at once")
        ScriptedEngine(threads).also { engines += it }
    }

    @AfterEach
    fun close() {
        gate.countDown()
        keeper.close()
    }

    @Test
    fun `it is opening until the bundle that was asked for last is open`() {
        keeper.open(File("a"), 1)
        keeper.open(File("b"), 2)
        assertEquals(State.Opening(File("b")), keeper.state)
        gate.countDown()
        assertEquals(File("b"), ready().about.folder)
        assertEquals(2, engines.last().threads)
    }

    @Test
    fun `a bundle that was given up is not opened`() {
        keeper.open(File("a"), 1)
        for (name in listOf("b", "c", "d")) keeper.open(File(name), 1)
        gate.countDown()
        ready()
        assertTrue(engines.size <= 2, "opened ${engines.size}")
    }

    @Test
    fun `released it is closed at once, and its decoder soon`() {
        gate.countDown()
        keeper.open(File("a"), null)
        ready()
        keeper.release()
        assertEquals(State.Closed, keeper.state)
        await { engines.last().closed }
    }

    private fun ready(): State.Ready {
        await { keeper.state is State.Ready }
        return keeper.state as State.Ready
    }

    private fun await(met: () -> Boolean) {
        val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60)
        while (!met()) {
            check(System.nanoTime() < deadline) { "the keeper is ${keeper.state}" }
            Thread.sleep(1)
        }
    }
}
