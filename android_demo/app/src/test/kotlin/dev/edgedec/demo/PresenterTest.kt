package dev.edgedec.demo

import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import dev.edgedec.core.State
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.io.File
import java.util.concurrent.TimeUnit

/** What the phone's own tests cannot bring about: one thread's news between those of another. */
class PresenterTest {
    private val shelf = FakeShelf("demo", "mine")
    private val store = FakeStore()
    private val host = FakeHost()
    private val presenter = Presenter(shelf, store, newSeed = { 11 })
    private val screen: Screen get() = presenter.tick()

    @Test
    fun `a stop between both sides of a race starts no second one`() {
        open()
        presenter.race("a")
        host.engine.say("b")
        host.engine.end()
        presenter.stop()
        assertEquals(Shown.READY, screen.shown)
        assertEquals(1, host.engine.requests.size)
        assertNull(screen.race?.drafted)
    }

    @Test
    fun `without that stop it does`() {
        open()
        presenter.race("a")
        host.engine.end()
        assertEquals(Shown.RACING, screen.shown)
        assertEquals(listOf(11L, 11L), host.engine.requests.map { it.sampling.seed })
    }

    @Test
    fun `a decoder that is released between both sides ends the race`() {
        open()
        presenter.race("a")
        host.engine.end()
        host.release()
        assertEquals(Shown.RELEASED, screen.shown)
        assertEquals(1, host.engine.requests.size)
    }

    @Test
    fun `what is asked of a released decoder waits for it`() {
        open()
        host.release()
        assertEquals(Shown.RELEASED, screen.shown)
        host.slow = true
        presenter.decode("a")
        assertEquals(Shown.OPENING, screen.shown)
        assertEquals(emptyList<Request>(), host.engine.requests)
        host.settle()
        assertEquals(Shown.DECODING, screen.shown.also { presenter.tick() })
        assertEquals("a", host.engine.requests.single().prompt)
    }

    @Test
    fun `nothing is asked twice`() {
        open()
        presenter.decode("a")
        presenter.decode("b")
        presenter.race("c")
        assertEquals(listOf("a"), host.engine.requests.map { it.prompt })
    }

    @Test
    fun `another bundle ends the text`() {
        open()
        presenter.decode("a")
        host.engine.say("b")
        presenter.choose(shelf.bundles()[1])
        assertEquals(Ending.CANCELLED, screen.turns.single().answer.ending)
        assertEquals("ab", screen.turns.single().let { it.prompt + it.answer.passage.text })
        assertEquals("mine", store.bundle)
        assertEquals(listOf("demo", "mine"), host.opened)
    }

    @Test
    fun `an import that ends during a text does not end it`() {
        open()
        presenter.import(FakeShelf.incoming("new"))
        presenter.decode("a")
        shelf.finishCopy()
        await { screen.copying == null }
        assertEquals(Shown.DECODING, screen.shown)
        assertEquals("demo", screen.chosen?.name)
        assertEquals(listOf("demo", "mine", "new"), screen.bundles.map { it.name })
    }

    @Test
    fun `an import that ends at rest is opened`() {
        open()
        presenter.import(FakeShelf.incoming("new"))
        shelf.finishCopy()
        await { screen.copying == null }
        assertEquals("new", screen.chosen?.name)
    }

    @Test
    fun `a broken import is one sentence, and the bundle stays open`() {
        open()
        shelf.failure = "'target/model.onnx' was altered"
        presenter.import(FakeShelf.incoming("new"))
        shelf.finishCopy()
        await { screen.error != null }
        assertEquals(shelf.failure, screen.error)
        assertEquals(Shown.READY to "demo", screen.shown to screen.chosen?.name)
    }

    @Test
    fun `a race has a ratio only if both sides are complete`() {
        open()
        presenter.race("a")
        host.engine.say("b")
        host.engine.end(tpotS = 0.03)
        assertNull(screen.race?.ratio)
        host.engine.say("b")
        host.engine.end("cancelled", tpotS = 0.01)
        assertNull(screen.race?.ratio)
        val complete = screen.race?.let { it.copy(drafted = it.drafted?.copy(ending = Ending.LENGTH)) }
        assertEquals(3.0, complete?.ratio ?: 0.0, 1e-9)
    }

    @Test
    fun `text and state of the screen are those of the run`() {
        presenter.attach(host)
        assertTrue(screen.settings == Settings())
        presenter.change(Settings(length = 32))
        assertEquals(32, store.settings.length)
    }

    private fun open() {
        presenter.attach(host)
        assertEquals(Shown.READY, screen.shown)
    }

    private fun await(met: () -> Boolean) {
        val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60)
        while (!met()) {
            check(System.nanoTime() < deadline) { "the screen is $screen" }
            Thread.sleep(1)
        }
    }

    private class FakeStore : Store {
        override var bundle: String? = null
        var settings = Settings()

        override fun load() = settings
        override fun save(settings: Settings) {
            this.settings = settings
        }
    }

    /** A service whose decoder is open at once, unless it is [slow]. */
    private class FakeHost : Host {
        val opened = mutableListOf<String>()
        var engine = ScriptedEngine(null)
        var slow = false
        private var opening: File? = null
        override val state: State get() = opening?.let { State.Opening(it) } ?: engine.state
        override val memoryMb: Int? = null
        override val thermal: Int? = null

        override fun open(folder: File, threads: Int?) {
            engine.close()
            engine = ScriptedEngine(threads).also { it.open(folder) }
            opened += folder.name
            if (slow) opening = folder
        }

        fun settle() {
            opening = null
        }

        override fun generate(request: Request, listener: Listener) = engine.generate(request, listener)
        override fun cancel() = engine.cancel()
        override fun release() = engine.close()
    }
}
