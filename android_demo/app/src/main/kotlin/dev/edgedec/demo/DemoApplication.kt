package dev.edgedec.demo

import android.app.Application
import android.content.Context
import android.system.Os

/** Makes the parts of the app; tests put others in their place. */
open class DemoApplication : Application() {
    /** One for the whole process, since it copies one bundle at a time. */
    open val shelf: Shelf by lazy { Library(this, getSharedPreferences("bundles", MODE_PRIVATE)) }

    override fun attachBaseContext(base: Context) {
        super.attachBaseContext(base)
        // ONNX Runtime reports to its makers unless this is set when its library is loaded.
        Os.setenv("ORT_DISABLE_TELEMETRY", "1", true)
    }

    /** Returns a decoder; null threads leave their number to it. */
    open fun engine(threads: Int?): Engine = CoreEngine(threads)

    open fun hint(): PaceHint = PaceHint.of(this)

    fun presenter() = Presenter(shelf, Preferences(getSharedPreferences("settings", MODE_PRIVATE)))
}
