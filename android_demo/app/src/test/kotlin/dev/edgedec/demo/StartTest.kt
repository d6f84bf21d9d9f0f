package dev.edgedec.demo

import android.content.pm.PackageManager
import android.view.View
import android.widget.Spinner
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Test
import org.robolectric.annotation.Config

class StartTest : PhoneTest() {
    @Test
    fun `the first start copies the demo and opens it`() {
        val shelf = FakeShelf().apply { incoming = FakeShelf.incoming("demo") }
        app.shelf = shelf
        shelf.copied = 3_200_000L to 12_900_000L
        phone.start()
        phone.until("progress") { phone.text(R.id.copying_text) == "Copying demo: 3.2 MB of 13 MB" }
        assertFalse(phone.view<View>(R.id.decode).isEnabled)
        shelf.finishCopy()
        untilReady(1)
        assertFalse(phone.visible(R.id.copying))
        assertEquals("Ready with a draft model, opened in 0.03 s, 4 threads", status)
        assertTrue(phone.view<View>(R.id.decode).isEnabled)
        assertEquals("demo", phone.view<Spinner>(R.id.bundles).selectedItem)
    }

    @Test
    fun `without any bundle it says what to do`() {
        app.shelf = FakeShelf()
        phone.start()
        assertEquals("Import a folder that edgedec export wrote.", status)
        assertFalse(phone.view<View>(R.id.decode).isEnabled)
        assertFalse(phone.view<View>(R.id.race_start).isEnabled)
    }

    @Test
    fun `a bundle that cannot be opened is one sentence`() {
        app.failure = "the graph has no input 'past_0': export the bundle again"
        phone.start()
        phone.until("an error") { phone.visible(R.id.error) }
        assertEquals(app.failure, phone.text(R.id.error))
        assertEquals("The bundle is not open.", status)
    }

    @Test
    fun `another try opens it again`() {
        app.failure = "the file cannot be read"
        phone.start()
        phone.until("an error") { phone.visible(R.id.error) }
        app.failure = null
        decode("def f():")
        phone.until("a text") { engine.requests.isNotEmpty() }
        assertFalse(phone.visible(R.id.error))
    }

    @Test
    fun `the bundle of the last time is opened`() {
        app.shelf = FakeShelf("demo", "mine")
        startReady()
        phone.view<Spinner>(R.id.bundles).setSelection(1)
        phone.idle()
        untilReady(2)
        phone.killAndComeBack()
        untilReady(3)
        assertEquals("mine", phone.view<Spinner>(R.id.bundles).selectedItem)
    }

    @Test
    @Config(shadows = [RecordedEnvironment::class])
    fun `nothing is reported`() {
        assertEquals("1", RecordedEnvironment.set["ORT_DISABLE_TELEMETRY"])
        val asked = app.packageManager.getPackageInfo(app.packageName, PackageManager.GET_PERMISSIONS)
        assertNull(asked.requestedPermissions)
    }

    @Test
    fun `what is touched says what it is`() {
        startReady()
        for (id in intArrayOf(R.id.bundles, R.id.import_bundle, R.id.settings_open, R.id.race_start, R.id.clear)) {
            val view = phone.view<View>(id)
            assertFalse(view.contentDescription.isNullOrEmpty())
            val least = 48 * phone.activity.resources.displayMetrics.density
            assertTrue("${view.height} is less than a finger needs", view.height >= least.toInt())
        }
    }
}
