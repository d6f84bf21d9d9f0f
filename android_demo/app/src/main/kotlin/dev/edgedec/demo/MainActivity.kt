package dev.edgedec.demo

import android.app.Activity
import android.content.ActivityNotFoundException
import android.content.Intent
import android.os.Bundle
import android.os.Handler
import android.os.Looper

/** The only screen. What it shows is decided by the [Presenter], which stays when the phone is turned. */
class MainActivity : Activity() {
    private class Kept(val presenter: Presenter, val connection: Connection)

    private val handler = Handler(Looper.getMainLooper())
    private val tick = Runnable { show() }
    private lateinit var kept: Kept
    private lateinit var view: MainView

    override fun onCreate(saved: Bundle?) {
        super.onCreate(saved)
        kept = lastNonConfigurationInstance as? Kept ?: begin(saved)
        setContentView(R.layout.main)
        view = MainView(findViewById(R.id.root), kept.presenter, ::pickFolder)
    }

    private fun begin(saved: Bundle?): Kept {
        val presenter = (application as DemoApplication).presenter()
        if (saved != null) presenter.restore(SavedTurns.read(saved), saved.getBoolean(CHAT))
        return Kept(presenter, Connection(applicationContext, presenter))
    }

    override fun onStart() {
        super.onStart()
        kept.connection.bind()
        show()
    }

    override fun onStop() {
        handler.removeCallbacks(tick)
        if (!isChangingConfigurations) kept.connection.unbind()
        super.onStop()
    }

    override fun onDestroy() {
        if (isFinishing) kept.presenter.cancelImport()
        super.onDestroy()
    }

    override fun onRetainNonConfigurationInstance(): Any = kept

    override fun onSaveInstanceState(out: Bundle) {
        super.onSaveInstanceState(out)
        val screen = kept.presenter.screen
        SavedTurns.write(screen.turns, out)
        out.putBoolean(CHAT, screen.chat)
    }

    // Its successor is of Android 13.
    @Suppress("OVERRIDE_DEPRECATION", "DEPRECATION")
    override fun onBackPressed() {
        if (!kept.presenter.screen.settingsOpen) return super.onBackPressed()
        kept.presenter.showSettings(false)
        show()
    }

    override fun onActivityResult(request: Int, result: Int, data: Intent?) {
        super.onActivityResult(request, result, data)
        val tree = data?.data
        if (request != PICK || result != RESULT_OK || tree == null) return
        val source = TreeSource(applicationContext.contentResolver, tree)
        kept.presenter.import(Incoming(source.name, source))
        show()
    }

    private fun pickFolder() = try {
        startActivityForResult(Intent(Intent.ACTION_OPEN_DOCUMENT_TREE), PICK)
    } catch (_: ActivityNotFoundException) {
        kept.presenter.refuse(getString(R.string.no_picker))
    }

    private fun show() {
        handler.removeCallbacks(tick)
        val screen = kept.presenter.tick()
        view.show(screen)
        handler.postDelayed(tick, if (screen.busy) BUSY_MS else IDLE_MS)
    }

    private companion object {
        const val PICK = 1
        const val CHAT = "chat"
        /** Quick enough for the eye, and leaves the processor to the decoder. */
        const val BUSY_MS = 66L
        const val IDLE_MS = 250L
    }
}
