package dev.edgedec.demo

import android.view.View
import android.widget.EditText
import android.widget.SeekBar
import android.widget.Spinner
import dev.edgedec.core.Drafter
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Test

class SettingsTest : PhoneTest() {
    @Test
    fun `what is set is asked of the decoder, and kept`() {
        startReady()
        set()
        phone.tap(R.id.settings_done)
        decode("a")
        val request = engine.requests.single()
        assertEquals(Drafter.LOOKUP, request.drafter)
        assertEquals(0.7, request.sampling.temperature, 0.0)
        assertEquals(-3L, request.sampling.seed)
        assertEquals(256, request.maxNewTokens)
        engine.end()
        phone.killAndComeBack()
        phone.tap(R.id.settings_open)
        assertEquals("Temperature: 0.7", phone.text(R.id.temperature_label))
        assertEquals("Length: up to 256 tokens", phone.text(R.id.length_label))
        assertEquals("-3", phone.text(R.id.seed))
        assertEquals(Drafter.LOOKUP.ordinal, phone.view<Spinner>(R.id.drafter).selectedItemPosition)
    }

    @Test
    fun `settings survive turning the phone, and back closes them`() {
        startReady()
        set()
        phone.turn()
        assertTrue(phone.visible(R.id.settings))
        assertEquals("Temperature: 0.7", phone.text(R.id.temperature_label))
        phone.back()
        assertFalse(phone.visible(R.id.settings))
        assertFalse(phone.activity.isFinishing)
    }

    @Test
    fun `another number of threads opens the bundle anew`() {
        startReady()
        phone.tap(R.id.settings_open)
        phone.view<SeekBar>(R.id.threads).progress = 1
        phone.tap(R.id.settings_done)
        untilReady(2)
        assertEquals(1, engine.threads)
        assertTrue(status, status.endsWith("1 thread"))
    }

    @Test
    fun `the demo cannot be removed`() {
        startReady()
        phone.tap(R.id.settings_open)
        assertEquals("demo: 13 MB", phone.text(R.id.bundle_facts))
        assertEquals(View.GONE, phone.view<View>(R.id.remove).visibility)
    }

    private fun set() {
        phone.tap(R.id.settings_open)
        phone.view<Spinner>(R.id.drafter).setSelection(Drafter.LOOKUP.ordinal)
        phone.view<SeekBar>(R.id.temperature).progress = 7
        phone.view<SeekBar>(R.id.length).progress = 16
        phone.view<EditText>(R.id.seed).setText("-3")
        phone.idle()
    }
}
