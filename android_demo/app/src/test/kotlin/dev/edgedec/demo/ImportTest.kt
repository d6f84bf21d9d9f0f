package dev.edgedec.demo

import android.app.Activity
import android.content.Context
import android.content.DialogInterface.BUTTON_POSITIVE
import android.content.Intent
import android.widget.Spinner
import org.junit.Assert.assertEquals
import org.junit.Assert.assertFalse
import org.junit.Assert.assertTrue
import org.junit.Before
import org.junit.Rule
import org.junit.Test
import org.junit.rules.TemporaryFolder
import org.robolectric.Robolectric
import org.robolectric.Shadows.shadowOf
import org.robolectric.annotation.Config
import org.robolectric.shadows.ShadowAlertDialog
import java.io.File

/** Imports with the system's folder picker, into the app's real files. */
@Config(shadows = [Storage::class])
class ImportTest : PhoneTest() {
    @get:Rule
    val temporary = TemporaryFolder()
    private lateinit var picked: File
    private val shelf by lazy { Library(app, app.getSharedPreferences("bundles", Context.MODE_PRIVATE)) }
    private val provider by lazy { Robolectric.setupContentProvider(FolderProvider::class.java, FolderProvider.AUTHORITY) }

    @Before
    fun prepare() {
        picked = temporary.newFolder("mine")
        app.shelf = object : Shelf by shelf {
            override fun demo(): Incoming? = null
        }
    }

    @Test
    fun `a good bundle is copied, checked and opened`() {
        TinyBundle.write(picked)
        phone.start()
        pick()
        untilReady(1)
        val bundle = shelf.bundles().single()
        assertEquals("mine", bundle.name)
        assertEquals("mine", phone.view<Spinner>(R.id.bundles).selectedItem)
        for (name in listOf("manifest.json", "target/model.onnx", "tokenizer/tokenizer.json")) {
            assertTrue(name, File(picked, name).readBytes().contentEquals(File(bundle.folder, name).readBytes()))
        }
        assertFalse(phone.visible(R.id.error))
    }

    @Test
    fun `a changed file is refused`() {
        TinyBundle.write(picked)
        val weights = File(picked, "target/model.onnx")
        weights.writeBytes(weights.readBytes().also { it[1000]++ })
        refuses("'target/model.onnx' was altered")
    }

    @Test
    fun `a missing file is refused`() {
        TinyBundle.write(picked)
        File(picked, "tokenizer/tokenizer.json").delete()
        refuses("'tokenizer/tokenizer.json' is missing")
    }

    @Test
    fun `a path out of the folder is refused`() {
        TinyBundle.write(picked) { it.replace("tokenizer/tokenizer.json", "../tokenizer.json") }
        refuses("'../tokenizer.json' is not a path inside the bundle")
    }

    @Test
    fun `a folder without a manifest is refused`() = refuses("'manifest.json' is missing")

    @Test
    fun `a bundle for which there is no room is refused`() {
        TinyBundle.write(picked)
        Storage.freeBytes = 100_000
        try {
            refuses("needs 1 MiB")
        } finally {
            Storage.reset()
        }
    }

    @Test
    fun `a picker that is left changes nothing`() {
        phone.start()
        phone.tap(R.id.import_bundle)
        val asked = shadowOf(phone.activity).nextStartedActivityForResult.intent
        assertEquals(Intent.ACTION_OPEN_DOCUMENT_TREE, asked.action)
        shadowOf(phone.activity).receiveResult(asked, Activity.RESULT_CANCELED, null)
        phone.idle()
        assertFalse(phone.visible(R.id.copying))
        assertFalse(phone.visible(R.id.error))
    }

    @Test
    fun `a cancelled import leaves nothing`() {
        val slow = FakeShelf("demo")
        app.shelf = slow
        startReady()
        phone.tap(R.id.import_bundle)
        TinyBundle.write(picked)
        answerPicker()
        phone.until("a copy") { phone.visible(R.id.copying) }
        phone.tap(R.id.copying_cancel)
        phone.until("no copy") { !phone.visible(R.id.copying) }
        assertFalse(phone.visible(R.id.error))
        assertEquals(listOf("demo"), slow.bundles().map { it.name })
    }

    @Test
    fun `a removed bundle is gone, and the demo stays`() {
        TinyBundle.write(picked)
        phone.start()
        pick()
        untilReady(1)
        val folder = shelf.bundles().single().folder
        phone.tap(R.id.settings_open)
        phone.tap(R.id.remove)
        ShadowAlertDialog.getLatestAlertDialog().getButton(BUTTON_POSITIVE).performClick()
        phone.idle()
        assertFalse(folder.exists())
        phone.until("no bundle") { status.startsWith("Import a folder") }
    }

    private fun refuses(reason: String) {
        phone.start()
        pick()
        phone.until("an error") { phone.visible(R.id.error) }
        val sentence = phone.text(R.id.error)
        assertTrue(sentence, sentence.contains(reason))
        assertEquals("one line", 1, sentence.lines().size)
        assertEquals(emptyList<Installed>(), shelf.bundles())
        assertEquals("nothing remains", emptyList<String>(), File(app.filesDir, "bundles").list().orEmpty().toList())
    }

    private fun pick() {
        phone.tap(R.id.import_bundle)
        answerPicker()
    }

    private fun answerPicker() {
        val asked = shadowOf(phone.activity).nextStartedActivityForResult.intent
        shadowOf(phone.activity).receiveResult(asked, Activity.RESULT_OK, Intent().setData(provider.offer(picked)))
        phone.idle()
    }
}
