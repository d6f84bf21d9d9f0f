@file:Suppress("PackageDirectoryMismatch", "unused")

// What Robolectric calls of androidx.test, which Maven Central does not have.
package androidx.test.platform.app

import android.app.Instrumentation
import android.os.Bundle

object InstrumentationRegistry {
    @Volatile private var registered: Instrumentation? = null

    @Volatile private var given = Bundle.EMPTY

    @JvmStatic
    fun getInstrumentation(): Instrumentation = checkNotNull(registered) { "no instrumentation was registered" }

    @JvmStatic
    fun getArguments(): Bundle = Bundle(given)

    @JvmStatic
    fun registerInstance(instrumentation: Instrumentation?, arguments: Bundle?) {
        registered = instrumentation
        given = arguments ?: Bundle.EMPTY
    }
}
