package dev.edgedec.demo

import android.app.Activity
import android.content.Intent
import android.graphics.Bitmap
import android.graphics.Canvas
import android.view.View
import android.widget.EditText
import android.widget.SeekBar
import android.widget.TextView
import dev.edgedec.core.Emission
import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import org.junit.Assume.assumeTrue
import org.junit.Rule
import org.junit.Test
import org.junit.rules.TemporaryFolder
import org.junit.runner.RunWith
import org.robolectric.ParameterizedRobolectricTestRunner
import org.robolectric.ParameterizedRobolectricTestRunner.Parameters
import org.robolectric.Robolectric
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf
import org.robolectric.annotation.Config
import org.robolectric.annotation.GraphicsMode
import java.io.File
import java.util.concurrent.Semaphore

/**
 * Pictures of the app as Android draws it, with the real decoder, into the folder of `-Dcaptures`.
 *
 * The figures in them are those of the machine that draws.
 */
@RunWith(ParameterizedRobolectricTestRunner::class)
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@Config(application = CapturesTest.Paced::class, shadows = [Storage::class], sdk = [34])
class CapturesTest(private val theme: String) {
    /** The app with a decoder that waits between rounds until it may go on. */
    class Paced : DemoApplication() {
        val rounds = Semaphore(0)
        override val shelf: Shelf by lazy { Slow(Library(this, getSharedPreferences("bundles", MODE_PRIVATE))) }

        override fun hint() = PaceHint.none

        override fun engine(threads: Int?): Engine {
            val engine = CoreEngine(threads)
            return object : Engine by engine {
                override fun generate(request: Request, listener: Listener) =
                    engine.generate(request, object : Listener by listener {
                        override fun onTokens(tokens: List<Emission>) {
                            listener.onTokens(tokens)
                            rounds.acquire()
                        }
                    })
            }
        }
    }

    /** A library that comes not far with a bundle called `my-model`. */
    private class Slow(private val shelf: Shelf) : Shelf by shelf {
        override fun copy(incoming: Incoming, watch: Watch): Installed {
            while (incoming.name == "my-model" && !watch.cancelled) {
                watch.onProgress(412_000_000, 1_190_000_000)
                Thread.sleep(1)
            }
            return shelf.copy(incoming, watch)
        }
    }

    @get:Rule
    val temporary = TemporaryFolder()
    private val folder = System.getProperty("captures").orEmpty()
    private val phone by lazy { Phone() }
    private val provider by lazy { Robolectric.setupContentProvider(FolderProvider::class.java, FolderProvider.AUTHORITY) }
    private val app get() = phone.application as Paced

    @Test
    fun `each state has a picture`() {
        assumeTrue("needs -Dcaptures=FOLDER", folder.isNotEmpty())
        RuntimeEnvironment.setQualifiers("w411dp-h891dp-" + (if (theme == "dark") "night" else "notnight") + "-xhdpi")
        firstStart()
        phone.type(PROMPT)
        decoding()
        race()
        settings()
        importing()
        failing()
        landscape()
        phone.hide()
    }

    private fun firstStart() {
        phone.start()
        phone.until("an open demo") { phone.text(R.id.status).contains("opened in") }
        draw("first-start")
    }

    private fun decoding() {
        phone.tap(R.id.decode)
        app.rounds.release(ROUNDS)
        phone.until("a text that waits") { app.rounds.availablePermits() == 0 && phone.text(R.id.figures).isNotEmpty() }
        phone.idle(1000)
        draw("decoding")
        finish()
        draw("finished")
    }

    private fun race() {
        app.rounds.drainPermits()
        phone.tap(R.id.race_start)
        app.rounds.release(LENGTH + ROUNDS)
        phone.until("the second side") { phone.text(R.id.status).contains("with a draft") && app.rounds.availablePermits() == 0 }
        phone.idle(1000)
        draw("racing")
        finish()
        draw("race")
        phone.tap(R.id.clear)
    }

    private fun settings() {
        phone.tap(R.id.settings_open)
        phone.view<SeekBar>(R.id.temperature).progress = 7
        phone.view<EditText>(R.id.seed).setText("3")
        phone.view<SeekBar>(R.id.threads).progress = 0
        phone.idle()
        draw("settings")
        phone.view<SeekBar>(R.id.temperature).progress = 0
        phone.back()
    }

    private fun importing() {
        pick("my-model")
        phone.until("a copy") { phone.text(R.id.copying_text).contains("412") }
        draw("import")
        phone.tap(R.id.copying_cancel)
        phone.until("no copy") { !phone.visible(R.id.copying) }
    }

    private fun failing() {
        pick("broken")
        phone.until("an error") { phone.visible(R.id.error) }
        draw("error")
    }

    /** Picks a folder with a damaged bundle. */
    private fun pick(name: String) {
        val picked = TinyBundle.write(temporary.newFolder(name))
        File(picked, "target/model.onnx").writeBytes(ByteArray(200_000))
        phone.tap(R.id.import_bundle)
        val asked = shadowOf(phone.activity).nextStartedActivityForResult.intent
        shadowOf(phone.activity).receiveResult(asked, Activity.RESULT_OK, Intent().setData(provider.offer(picked)))
        phone.idle()
    }

    private fun landscape() {
        phone.type(PROMPT)
        phone.tap(R.id.decode)
        finish()
        phone.turn("+land")
        phone.idle(1000)
        draw("landscape")
    }

    private fun finish() {
        app.rounds.release(1000)
        phone.until("an end") { !phone.view<View>(R.id.root).keepScreenOn }
        phone.idle(1000)
        app.rounds.drainPermits()
    }

    private fun draw(state: String) {
        phone.view<TextView>(R.id.prompt).isCursorVisible = false
        phone.idle()
        val view = phone.activity.window.decorView
        val picture = Bitmap.createBitmap(view.width, view.height, Bitmap.Config.ARGB_8888)
        view.draw(Canvas(picture))
        IndexedPng.write(picture, File(folder, "android-$state-$theme.png"))
    }

    companion object {
        @JvmStatic
        @Parameters(name = "{0}")
        fun themes() = listOf(arrayOf("light"), arrayOf("dark"))

        const val PROMPT = "def remove_label(self, label):\n    \"\"\"Remove a label from the message.\"\"\"\n"
        const val ROUNDS = 20
        const val LENGTH = 128
    }
}
