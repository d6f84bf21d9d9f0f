package dev.edgedec.demo

import android.os.PowerManager.THERMAL_STATUS_LIGHT
import android.os.PowerManager.THERMAL_STATUS_MODERATE
import android.os.PowerManager.THERMAL_STATUS_SEVERE
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test
import org.robolectric.annotation.Config

/** Heat, which phones tell since Android 10. */
@Config(sdk = [34])
class HeatOnPhoneTest : PhoneTest() {
    @Test
    fun `a hot phone takes a thread away, and a cool one gives it back`() {
        startReady()
        phone.heat(THERMAL_STATUS_SEVERE)
        untilReady(2)
        assertEquals(3, engine.threads)
        assertTrue(status, status.endsWith("3 threads. The phone is hot: one thread fewer."))
        assertTrue(figures, figures.endsWith("heat: severe"))
        phone.heat(THERMAL_STATUS_MODERATE)
        assertEquals("the same decoder", 2, app.engines.size)
        phone.heat(THERMAL_STATUS_LIGHT)
        untilReady(3)
        assertEquals(null, engine.threads)
    }

    @Test
    fun `heat ends no text`() {
        startReady()
        decode("a")
        engine.say("b")
        phone.heat(THERMAL_STATUS_SEVERE)
        assertEquals(1, app.engines.size)
        engine.say("c")
        engine.end()
        phone.idle()
        untilReady(2)
        assertEquals("abc", text)
        assertEquals(3, engine.threads)
    }
}
