package dev.edgedec.demo

import android.view.View
import android.widget.Spinner
import android.widget.TextView
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.annotation.Config

/** The app as it is shipped, on ONNX Runtime for this machine: the demo is copied out of the APK and decodes. */
@RunWith(RobolectricTestRunner::class)
@Config(shadows = [Storage::class], sdk = [26, 34], qualifiers = "w411dp-h891dp-hdpi")
class RealEngineTest {
    private val phone = Phone()

    @Test
    fun `the demo decodes, and races`() {
        phone.start()
        phone.until("an open demo") { phone.text(R.id.status).contains("opened in") }
        assertEquals("Demo pair (writes Python)", phone.view<Spinner>(R.id.bundles).selectedItem)
        phone.tap(R.id.decode)
        phone.until("a text") { !phone.view<View>(R.id.root).keepScreenOn }
        val prompt = phone.text(R.id.prompt)
        val text = phone.text(R.id.text)
        assertTrue(text, text.startsWith(prompt) && text.length > prompt.length + 100)
        assertTrue(phone.text(R.id.figures), phone.text(R.id.figures).contains("accepted"))
        phone.tap(R.id.race_start)
        phone.until("a verdict") { phone.text(R.id.verdict).contains("times") }
        for (lane in intArrayOf(R.id.plain, R.id.drafted)) {
            val rate = phone.view<View>(lane).findViewById<TextView>(R.id.lane_rate).text
            assertTrue("$rate", rate.startsWith("128 of 128"))
        }
        // Another text is an error only where the decoder knows that drafts change nothing.
        assertFalse(phone.text(R.id.verdict), phone.text(R.id.verdict).contains("should not"))
        phone.hide()
    }
}
