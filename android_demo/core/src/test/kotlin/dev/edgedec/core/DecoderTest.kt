package dev.edgedec.core

import java.io.File
import java.util.concurrent.CountDownLatch
import java.util.concurrent.TimeUnit
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir

class DecoderTest {
    private val options = DecoderOptions(threads = 1, maxContext = 512, batchInvariant = true)
    private val request = Request(prompt = "def main(argv):\n", maxNewTokens = 32, ignoreEos = true)

    @Test
    fun `a text comes in pieces, then its figures`() = decoding { decoder ->
        val heard = decoder.decode(request)
        val figures = checkNotNull(heard.figures)
        assertEquals("length", figures.reason)
        assertEquals(32, figures.newTokens)
        assertEquals(32, heard.tokens.size)
        assertTrue(figures.ttftS > 0 && checkNotNull(figures.tpotS) > 0)
        assertTrue(heard.tokens.any { it.drafted } == (figures.accepted > 0))
        val about = (decoder.state as State.Ready).about
        assertEquals(listOf("target", "draft"), listOf(about.target, about.draft))
        assertEquals(listOf(512, 1), listOf(about.maxContext, about.threads))
        assertTrue(about.exact)
        assertTrue(about.openS > 0)
    }

    @Test
    fun `the state follows what is done`() {
        val decoder = Decoder(options)
        assertEquals(State.Closed, decoder.state)
        decoder.open(Demo.folder)
        val seen = ArrayList<State>()
        decoder.decode(request) { seen += decoder.state }
        assertTrue(seen.isNotEmpty() && seen.all { it is State.Decoding })
        assertTrue(decoder.state is State.Ready)
        decoder.close()
        decoder.join()
        assertEquals(State.Closed, decoder.state)
    }

    @Test
    fun `a cancelled text ends at any moment, and the next one is as ever`() = decoding { decoder ->
        val whole = decoder.decode(request).ids()
        val long = request.copy(maxNewTokens = 400)
        val longPrompt = long.copy(prompt = request.prompt.repeat(60))
        repeat(40) { turn ->
            val heard = Heard()
            decoder.generate(if (turn % 2 == 0) long else longPrompt, heard)
            val until = System.nanoTime() + turn * 300_000L
            while (System.nanoTime() < until) Unit
            decoder.cancel()
            heard.await()
            assertEquals("cancelled", heard.figures?.reason)
            if (turn % 2 == 0) assertEquals(whole.take(heard.tokens.size), heard.ids().take(whole.size))
            assertEquals(whole, decoder.decode(request).ids())
        }
    }

    @Test
    fun `what a stop string held back is told when a text is cancelled`() = decoding { decoder ->
        val plain = decoder.decode(request)
        val text = plain.tokens.joinToString("") { it.text }
        // It never comes, but the whole text might begin it.
        val heard = decoder.decode(request.copy(stopStrings = listOf(text + "\u0000"))) { decoder.cancel() }
        assertEquals("cancelled", heard.figures?.reason)
        assertEquals("", heard.tokens.joinToString("") { it.text })
        assertTrue(heard.rest.isNotEmpty() && text.startsWith(heard.rest), heard.rest)
        assertEquals("", plain.rest)
    }

    @Test
    fun `a text that waits is cancelled as well`() = decoding { decoder ->
        val first = Heard()
        val second = Heard()
        decoder.generate(request.copy(maxNewTokens = 400), first)
        decoder.generate(request, second)
        decoder.cancel()
        listOf(first, second).forEach { it.await() }
        assertEquals(listOf("cancelled", "cancelled"), listOf(first, second).map { it.figures?.reason })
        assertEquals(0, second.tokens.size)
    }

    @Test
    fun `what cannot be decoded is one sentence, and the next text works`() = decoding { decoder ->
        val wrong = mapOf(
            request.copy(prompt = "x = 1\n".repeat(600)) to "the context holds 512",
            request.copy(prompt = "\ud800") to "not valid Unicode",
            request.copy(sampling = Sampling(temperature = -1.0)) to "temperature",
            request.copy(messages = listOf(Message("assistant", "Hello"))) to "expected user and assistant in turns",
            request.copy(draftLength = -1) to "draft length -1",
            request.copy(maxNewTokens = 0) to "max_new_tokens 0",
            request.copy(stopStrings = listOf("")) to "empty stop string",
        )
        for ((one, words) in wrong) {
            val heard = decoder.decode(one)
            assertTrue(words in heard.error.orEmpty(), "${heard.error}: expected $words")
            assertTrue("\n" !in heard.error.orEmpty())
        }
        assertNull(decoder.decode(request).error)
    }

    @Test
    fun `a conversation continues from what it has in common with the last one`() = decoding { decoder ->
        assertTrue((decoder.state as? State.Ready)?.about?.chat ?: true)
        val turns = listOf("user" to "What is a list?", "assistant" to "A sequence.", "user" to "And a set?")
            .map { (role, content) -> Message(role, content) }
        val first = decoder.decode(request.copy(messages = turns.take(1)))
        val next = decoder.decode(request.copy(messages = turns))
        assertTrue(checkNotNull(next.figures).promptTokens > checkNotNull(first.figures).promptTokens)
        assertTrue(checkNotNull(next.figures).reusedTokens > 0)
    }

    @Test
    fun `a listener that throws ends its own text only`() = decoding { decoder ->
        val whole = decoder.decode(request).ids()
        val heard = decoder.decode(request) { error("the view is gone") }
        assertTrue("the view is gone" in heard.error.orEmpty())
        assertEquals(whole, decoder.decode(request).ids())
    }

    @Test
    fun `a folder that is no bundle fails in words, and another one can be opened`(@TempDir folder: File) {
        val decoder = Decoder(options)
        decoder.open(folder)
        val heard = decoder.decode(request)
        val failed = decoder.state as State.Failed
        assertTrue("manifest.json" in failed.message)
        assertEquals(failed.message, heard.error)
        decoder.open(Demo.folder)
        assertNull(decoder.decode(request).error)
        decoder.close()
        decoder.join()
    }

    @Test
    fun `a context longer than memory fails in words`() {
        val memory = Memory { bytes ->
            if (bytes > 3_000_000) throw OutOfMemoryError()
            Memory.direct.allocate(bytes)
        }
        val decoder = Decoder(options.copy(memory = memory))
        decoder.open(Demo.folder)
        assertTrue("use a shorter context" in decoder.decode(request).error.orEmpty())
        decoder.close()
        decoder.join()
    }

    @Test
    fun `a closed decoder refuses in words`() {
        val decoder = Decoder(options)
        decoder.open(Demo.folder)
        val last = Heard()
        decoder.generate(request.copy(maxNewTokens = 400), last)
        decoder.close()
        decoder.close()
        last.await()
        assertEquals("cancelled", last.figures?.reason ?: "cancelled")
        decoder.cancel()
        assertEquals("the decoder is closed: make another one", decoder.decode(request).error)
        assertThrows(StateException::class.java) { decoder.open(Demo.folder) }
        decoder.join()
    }

    private fun decoding(block: (Decoder) -> Unit) {
        val decoder = Decoder(options)
        decoder.open(Demo.folder)
        decoder.use(block)
        decoder.join()
    }

    private fun Decoder.decode(request: Request, onTokens: () -> Unit = {}): Heard {
        val heard = Heard(onTokens)
        generate(request, heard)
        heard.await()
        return heard
    }
}

/** Keeps what a listener is told. */
private class Heard(private val then: () -> Unit = {}) : Listener {
    val tokens = ArrayList<Emission>()
    var rest = ""
    var figures: Figures? = null
    var error: String? = null
    private val done = CountDownLatch(1)

    override fun onTokens(tokens: List<Emission>) {
        this.tokens += tokens
        then()
    }

    override fun onRest(text: String) {
        rest = text
    }

    override fun onEnd(figures: Figures) {
        this.figures = figures
        done.countDown()
    }

    override fun onError(message: String) {
        error = message
        done.countDown()
    }

    fun ids() = tokens.map { it.token }

    fun await() = assertTrue(done.await(2, TimeUnit.MINUTES), "the text did not end")
}
