@file:Suppress("PackageDirectoryMismatch", "unused")

package androidx.test.runner.intent

import android.app.Instrumentation
import android.content.Intent

fun interface IntentCallback {
    fun onIntentSent(intent: Intent)
}

interface IntentMonitor {
    fun addIntentCallback(callback: IntentCallback)
    fun removeIntentCallback(callback: IntentCallback)
}

object IntentMonitorRegistry {
    @Volatile private var registered: IntentMonitor? = null

    @JvmStatic
    fun getInstance(): IntentMonitor? = registered

    @JvmStatic
    fun registerInstance(monitor: IntentMonitor?) {
        registered = monitor
    }
}

fun interface IntentStubber {
    fun getActivityResultForIntent(intent: Intent): Instrumentation.ActivityResult?
}

/** No intent is ever answered by a stub. */
object IntentStubberRegistry {
    @JvmStatic
    fun isLoaded(): Boolean = false

    @JvmStatic
    fun getInstance(): IntentStubber? = null

    @JvmStatic
    fun reset() = Unit
}
