package dev.edgedec.demo

import android.text.Spanned
import android.view.View
import android.widget.TextView
import dev.edgedec.core.Drafter
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertSame
import org.junit.Assert.assertTrue
import org.junit.Test

class DecodingTest : PhoneTest() {
    @Test
    fun `a text streams with drafted tokens marked`() {
        startReady()
        decode("def f(x):")
        assertEquals("Decoding…", status)
        engine.say("\n    return", " x", " + 1")
        phone.idle()
        assertEquals("def f(x):\n    return x + 1", text)
        assertEquals(listOf(" x + 1"), drafted())
        engine.say("\n", "\n")
        phone.idle()
        assertEquals(listOf(" x + 1", "\n"), drafted())
        assertTrue(figures, figures.contains("3 of 5 tokens drafted"))
        engine.end(drafted = 4, accepted = 3)
        phone.idle()
        assertTrue(figures, figures.startsWith("100 tokens/s · first token 210 ms · 3 of 4 drafted accepted (75%) · full length"))
        assertTrue(status, status.startsWith("Ready"))
    }

    @Test
    fun `the screen stays on while a text is decoded, and no longer`() {
        startReady()
        assertFalse(phone.view<View>(R.id.root).keepScreenOn)
        decode("a")
        assertTrue(phone.view<View>(R.id.root).keepScreenOn)
        engine.end()
        phone.idle()
        assertFalse(phone.view<View>(R.id.root).keepScreenOn)
    }

    @Test
    fun `stop ends the text and keeps it`() {
        startReady()
        decode("a")
        engine.say("b", "c")
        assertEquals("Stop", phone.text(R.id.decode))
        phone.tap(R.id.decode)
        assertEquals(1, engine.cancelled)
        assertEquals("abc", text)
        assertTrue(figures, figures.contains("stopped"))
        assertEquals("Decode", phone.text(R.id.decode))
    }

    @Test
    fun `turning the phone goes on with the text`() {
        startReady()
        decode("a")
        engine.say("b", "c")
        val before = phone.activity
        phone.turn()
        assertFalse(before === phone.activity)
        assertEquals("abc", text)
        assertEquals(listOf("c"), drafted())
        assertEquals("a", phone.text(R.id.prompt))
        engine.say("d")
        engine.end()
        phone.idle()
        assertEquals("abcd", text)
        assertEquals(0, engine.cancelled)
        assertEquals(1, app.engines.size)
    }

    @Test
    fun `the background releases the decoder, and the text is kept`() {
        startReady()
        decode("a")
        engine.say("b")
        val first = engine
        phone.hide()
        phone.until("a closed decoder") { first.closed }
        phone.comeBack()
        untilReady(2)
        assertEquals("ab", text)
        assertTrue(figures, figures.contains("stopped in the background"))
    }

    @Test
    fun `a killed app shows its text again`() {
        startReady()
        decode("a")
        engine.say("b", "c")
        engine.end()
        phone.idle()
        phone.killAndComeBack()
        untilReady(2)
        assertEquals("abc", text)
        assertEquals(listOf("c"), drafted())
    }

    @Test
    fun `short memory releases the decoder, and decoding opens it again`() {
        startReady()
        decode("a")
        engine.say("b")
        val first = engine
        phone.trimMemory(15)
        phone.until("a closed decoder") { first.closed }
        assertEquals("ab", text)
        assertEquals("Released to free memory; opened again when you decode.", status)
        assertTrue(figures, figures.contains("stopped: memory was short"))
        decode("c")
        phone.until("another text") { app.engines.size == 2 && engine.requests.size == 1 }
        engine.say("d")
        phone.idle()
        assertEquals("cd", text)
    }

    @Test
    fun `a little less memory releases nothing`() {
        startReady()
        phone.trimMemory(10)
        assertFalse(engine.closed)
    }

    @Test
    fun `a text that cannot go on is one sentence`() {
        startReady()
        decode("a")
        engine.say("b")
        engine.fail("the prompt has 9000 tokens and the model takes 8192: shorten it")
        phone.idle()
        assertEquals("the prompt has 9000 tokens and the model takes 8192: shorten it", phone.text(R.id.error))
        assertEquals("ab", text)
        decode("c")
        assertFalse(phone.visible(R.id.error))
    }

    @Test
    fun `a chat goes on with what was said`() {
        app.chat = true
        startReady()
        phone.tap(R.id.chat)
        decode("Hello")
        assertEquals("", phone.text(R.id.prompt))
        engine.say("Hi", " there")
        engine.end("eos")
        phone.idle()
        assertEquals("You: Hello\nHi there", text)
        decode("More")
        val messages = engine.requests.last().messages.orEmpty()
        assertEquals(listOf("user Hello", "assistant Hi there", "user More"), messages.map { "${it.role} ${it.content}" })
        engine.say("ok")
        phone.idle()
        assertEquals("You: Hello\nHi there\n\nYou: More\nok", text)
    }

    @Test
    fun `a bundle without chat pieces offers none`() {
        startReady()
        assertFalse(phone.visible(R.id.chat))
        decode("a")
        assertSame(null, engine.requests.last().messages)
    }

    @Test
    fun `a race decodes plainly, then with a draft`() {
        startReady()
        phone.type("a")
        phone.tap(R.id.race_start)
        assertEquals("Race: decoding plainly…", status)
        assertEquals("waiting", rate(R.id.drafted))
        engine.say("b")
        engine.say("c")
        engine.end(tpotS = 0.02)
        phone.idle()
        assertEquals("Race: decoding with a draft…", status)
        engine.say("b", "c")
        engine.end(tpotS = 0.01, drafted = 2, accepted = 1)
        phone.idle()
        assertEquals(
            "2.00 times as fast with a draft. Both texts are the same.\n1 of 2 drafted tokens accepted (50%), 2.00 tokens a pass.",
            phone.text(R.id.verdict),
        )
        val (plain, drafted) = engine.requests
        assertEquals(listOf(Drafter.NONE, Drafter.AUTO), listOf(plain.drafter, drafted.drafter))
        assertEquals(plain, drafted.copy(drafter = Drafter.NONE))
        assertTrue("both draw with one seed", plain.sampling.seed != null)
    }

    @Test
    fun `a race with another text says so`() {
        startReady()
        phone.tap(R.id.race_start)
        engine.say("b")
        engine.end()
        phone.idle()
        engine.say("c")
        engine.end()
        phone.idle()
        assertTrue(phone.text(R.id.verdict), phone.text(R.id.verdict).contains("The texts differ, as they may"))
    }

    @Test
    fun `a stopped race starts no second side`() {
        startReady()
        phone.tap(R.id.race_start)
        engine.say("b")
        phone.tap(R.id.decode)
        assertEquals(1, engine.requests.size)
        assertEquals("The race was stopped.", phone.text(R.id.verdict))
        phone.tap(R.id.clear)
        assertFalse(phone.visible(R.id.race))
    }

    private fun rate(lane: Int): String = phone.view<View>(lane).findViewById<TextView>(R.id.lane_rate).text.toString()

    private fun drafted(): List<String> {
        val shown = phone.view<TextView>(R.id.text).text as Spanned
        val spans = shown.getSpans(0, shown.length, DraftedSpan::class.java)
        return spans.map { shown.subSequence(shown.getSpanStart(it), shown.getSpanEnd(it)).toString() }
    }
}
